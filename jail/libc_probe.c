/* What a C library does in a plugin, and what it tries first on newer kernels: built against several of them, linked
 * statically, and run behind every profile's filter. Never installed. argv[1]:
 *
 *   works   starts 50 threads, access, getrandom, clock_nanosleep, statx, openat2; exit 0 when all worked
 *   newer   a line "<call>: result <r> errno <e>" for calls that a filter may not know; exit 0 unless one said EPERM
 *   a call  does what no plugin may, with arguments that do no harm where nothing stops it; then says "survived" */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* By number: a library's headers may be older than the kernel. */
enum {
    kStatx = 332,
    kRseq = 334,
    kClone3 = 435,
    kCloseRange = 436,
    kOpenat2 = 437,
    kFaccessat2 = 439,
    kLandlockCreateRuleset = 444,
    kFutexWaitv = 449,
    kNobodys = 9999
};

enum { kThreads = 50 };

static void* run(void* ran) {
    __atomic_add_fetch((int*)ran, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int threads_run(void) {
    pthread_t threads[kThreads];
    int ran = 0;
    for (int i = 0; i < kThreads; ++i)
        if (pthread_create(&threads[i], NULL, run, &ran) != 0) return 0;
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    return ran == kThreads;
}

static int failed;
static void check(const char* what, int ok) {
    if (ok) return;
    ++failed;
    printf("%s failed: %s\n", what, strerror(errno));
}

static int works(void) {
    char bytes[16];
    char info[256];
    const struct timespec pause = {0, 1000};
    struct {
        unsigned long long flags, mode, resolve;
    } how = {O_RDONLY | O_DIRECTORY, 0, 0};
    check("50 threads", threads_run());
    check("access", access("/usr/lib", R_OK) == 0);
    check("getrandom", getrandom(bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
    check("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL) == 0);
    check("statx", syscall(kStatx, AT_FDCWD, "/usr", 0, 0x7ffu, info) == 0);
    check("openat2", syscall(kOpenat2, AT_FDCWD, "/usr", &how, sizeof how) >= 0 || errno == ENOSYS);
    return failed;
}

static int newer(void) {
    static const struct {
        const char* name;
        long number;
        long args[3];
    } calls[] = {
        {"9999", kNobodys, {0, 0, 0}},
        {"clone3", kClone3, {0, 0, 0}},
        {"faccessat2", kFaccessat2, {AT_FDCWD, 0, 0}},
        {"rseq", kRseq, {0, 0, 0}},
        {"futex_waitv", kFutexWaitv, {0, 0, 0}},
        {"close_range", kCloseRange, {1000, 1000, 0}},
        {"landlock_create_ruleset", kLandlockCreateRuleset, {0, 0, 1}},
    };
    int refused = 0;
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        errno = 0;
        const long result = syscall(
            calls[i].number, calls[i].args[0], calls[i].args[1], calls[i].args[2], 0L, 0L, 0L);
        refused += result < 0 && errno == EPERM;
        printf("%s: result %ld errno %d\n", calls[i].name, result, errno);
    }
    return refused;
}

static int forbidden(const char* what) {
    long result = 0;
    if (strcmp(what, "ptrace") == 0) {
        result = syscall(SYS_ptrace, 0x4206, 1, 0, 0);
    } else if (strcmp(what, "mount") == 0) {
        result = syscall(SYS_mount, 0, 0, 0, 0, 0);
    } else if (strcmp(what, "bpf") == 0) {
        result = syscall(SYS_bpf, 0, 0, 0);
    } else if (strcmp(what, "keyctl") == 0) {
        result = syscall(SYS_keyctl, 9999, 0, 0, 0, 0);
    } else if (strcmp(what, "execve") == 0) {
        char* const words[] = {(char*)"sh", NULL};
        result = execve("/bin/sh-of-nobody", words, NULL);
    } else if (strcmp(what, "socket") == 0) {
        result = socket(AF_INET, SOCK_STREAM, 0);
    } else {
        printf("unknown probe %s\n", what);
        return 64;
    }
    printf("survived %s: result %ld errno %d\n", what, result, errno);
    return 0;
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 4096);
    if (argc < 2) return 64;
    if (strcmp(argv[1], "works") == 0) return works();
    if (strcmp(argv[1], "newer") == 0) return newer();
    return forbidden(argv[1]);
}
