/* Uses of a C library that make its every import: nothing here works in an actor, all of it must link. Reactor, so that an
 * image is made of it, too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <wasi/api.h>

#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static char bytes[64];
static int used;

static void files(void) {
    struct stat facts;
    struct timespec times[2] = {{0, 0}, {0, 0}};
    used += stat("a", &facts) + fstat(0, &facts) + unlink("a") + rename("a", "b") + mkdir("a", 1);
    used += symlink("a", "b") + link("a", "b") + (int)readlink("a", bytes, 1) + ftruncate(0, 1);
    used += fsync(0) + fdatasync(0) + (int)pread(0, bytes, 1, 1) + (int)pwrite(0, bytes, 1, 1);
    used += (int)lseek(0, 1, SEEK_SET) + posix_fadvise(0, 1, 1, 1) + posix_fallocate(0, 1, 1);
    used += utimensat(0, "a", times, 0) + futimens(0, times) + fcntl(0, F_SETFL, 1) + rmdir("a");
    used += (fopen("a", "r") == NULL) + (opendir("a") == NULL) + (int)read(0, bytes, 1);
    used += (int)lseek(0, 0, SEEK_CUR);
}

static void others(void) {
    struct pollfd one = {0, POLLIN, 0};
    struct timespec now = {0, 1};
    __wasi_size_t a = 1;
    __wasi_size_t b = 1;
    used += poll(&one, 1, 1) + sched_yield() + accept(0, 0, 0);
    used += (int)recv(0, bytes, 1, 0) + (int)send(0, bytes, 1, 0) + shutdown(0, 1);
    used += clock_getres(CLOCK_REALTIME, &now) + (getenv("X") == NULL);
    used += (int)__wasi_fd_renumber(5, 6) + (int)__wasi_fd_fdstat_set_rights(5, 0, 0);
    used += (int)__wasi_args_sizes_get(&a, &b) + (int)__wasi_args_get(0, 0) + (int)(a + b);
}

/* /print /clock /random /exit /abort /all */
hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    if (hf_same(path, "/print")) {
        printf("a line\nand %d", 1);
        printf(" more\n");
        fprintf(stderr, "an error");
    }
    if (hf_same(path, "/clock")) {
        struct timeval tv;
        gettimeofday(&tv, NULL);
        return hf_reply_number(200, (hf_u64)tv.tv_sec * 1000 + (hf_u64)tv.tv_usec / 1000);
    }
    if (hf_same(path, "/random")) {
        char* copy = malloc(16);
        if (copy == NULL || getentropy(copy, 16) != 0) return -8;
        hf_i32 rc = hf_reply(200, copy, 16);
        free(copy);
        return rc;
    }
    if (hf_same(path, "/exit")) exit(3);
    if (hf_same(path, "/abort")) abort();
    if (hf_same(path, "/all")) {
        files();
        others();
        printf("errno %d\n", errno);
        return hf_reply_number(200, used != 0);
    }
    return hf_reply_text(200, "ok\n");
}
