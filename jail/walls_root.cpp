// The instance's own root. Everything is cloned as a detached mount before the tmpfs goes up, because the tmpfs hides
// the place it is mounted on; then root and old root change places and the old one is let go.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "abi/base/unique_fd.hpp"
#include "jail/owned.hpp"
#include "jail/walls.hpp"

namespace hf::jail {
namespace {

using layout::JailBind;
using layout::JailSpec;

// The root holds links, mount points and nothing else.
constexpr const char* kRootOptions = "size=256k,mode=755,nr_inodes=512";
// Scratch of the builder: a compiled module is below 50 MB, its assembly about ten times that.
constexpr const char* kScratchOptions = "size=1g,mode=1777,nr_inodes=4096";
// Where the new root is mounted for a moment, in a mount namespace nobody else sees. The first that exists is taken.
constexpr const char* kStagingPlaces[] = {"/tmp", "/run", "/mnt", "/var"};

struct Piece {
    std::string target;
    UniqueFd tree;  // a detached clone of the source
    bool directory = false;
};

Result<Piece> clone_tree(const std::string& source, const std::string& target, bool writable) {
    Piece piece;
    piece.target = target;
    piece.tree.reset(
        ::open_tree(AT_FDCWD,
                    source.c_str(),
                    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | static_cast<unsigned>(AT_RECURSIVE)));
    if (!piece.tree.valid()) return fail_errno(errno, "binding " + source);
    struct stat info {};
    if (::fstat(piece.tree.get(), &info) != 0) return fail_errno(errno, "looking at " + source);
    piece.directory = S_ISDIR(info.st_mode);
    // Device nodes must stay usable; nothing else has any business being one.
    const bool device = S_ISCHR(info.st_mode);
    mount_attr attributes{};
    attributes.attr_set = MOUNT_ATTR_NOSUID | (device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV) |
                          (writable || device ? 0U : MOUNT_ATTR_RDONLY);
    if (::mount_setattr(
            piece.tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) !=
        0)
        return fail_errno(errno, "restricting the bind of " + source);
    return piece;
}

Result<void> make_parents(const std::string& path) {
    for (std::size_t slash = path.find('/', 1); slash != path.npos;
         slash = path.find('/', slash + 1))
        if (::mkdir(path.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST)
            return fail_errno(errno, "making " + path.substr(0, slash) + " inside the jail");
    return {};
}

// `root` is "" once the new root is in place, the staging place before.
Result<void> place(const Piece& piece, const std::string& root) {
    const std::string target = root + piece.target;
    HF_TRY(make_parents(target));
    if (piece.directory) {
        if (::mkdir(target.c_str(), 0755) != 0 && errno != EEXIST)
            return fail_errno(errno, "making " + piece.target + " inside the jail");
    } else {
        const UniqueFd point(
            ::open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0444));
        if (!point.valid()) return fail_errno(errno, "making " + piece.target + " inside the jail");
    }
    if (::move_mount(piece.tree.get(), "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return fail_errno(errno, "placing " + piece.target + " inside the jail");
    return {};
}

bool exists(const char* path) {
    return ::access(path, F_OK) == 0;
}

// /lib and the like are links into /usr on a merged system and folders elsewhere: repeat what the host has.
Result<void> gather_system(const Profile& profile,
                           std::vector<Piece>& pieces,
                           std::vector<std::pair<std::string, std::string>>& links) {
    for (const char* path :
         {"/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache"}) {
        char link[256];
        const ssize_t length = ::readlink(path, link, sizeof link);
        if (length > 0 && length < static_cast<ssize_t>(sizeof link)) {
            links.emplace_back(path, std::string(link, static_cast<std::size_t>(length)));
        } else if (exists(path)) {
            HF_ASSIGN(Piece piece, clone_tree(path, path, false));
            pieces.push_back(std::move(piece));
        }
    }
    std::vector<const char*> more = {"/dev/null", "/dev/zero", "/dev/urandom"};
    if (profile.alternatives) more.push_back("/etc/alternatives");
    if (profile.name_service)
        for (const char* path :
             {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf"})
            more.push_back(path);
    for (const char* path : more) {
        if (!exists(path)) continue;
        HF_ASSIGN(Piece piece, clone_tree(path, path, false));
        pieces.push_back(std::move(piece));
    }
    return {};
}

Result<std::string> mount_staging() {
    for (const char* place : kStagingPlaces)
        if (::mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, kRootOptions) == 0)
            return std::string(place);
    return fail_errno(errno, "mounting a root for the jail");
}

Result<void> enter_root(const std::string& staging) {
    if (::chdir(staging.c_str()) != 0) return fail_errno(errno, "entering the jail's root");
    if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno(errno, "changing the root");
    if (::umount2(".", MNT_DETACH) != 0) return fail_errno(errno, "letting the old root go");
    if (::chdir("/") != 0) return fail_errno(errno, "entering the new root");
    return {};
}

Result<void> mount_inner(const JailSpec& spec, const Profile& profile, const SayMissing& missing) {
    // mkdir's mode is cut by the umask, so the sticky bit is set by the mount option.
    if (::mkdir("/tmp", 0755) != 0 && errno != EEXIST) return fail_errno(errno, "making /tmp");
    if (spec.scratch &&
        ::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, kScratchOptions) != 0)
        return fail_errno(errno, "mounting /tmp inside the jail");
    if (profile.proc && !spec.host_pids) {
        if (::mkdir("/proc", 0555) != 0 && errno != EEXIST)
            return fail_errno(errno, "making /proc");
        // subset=pid: no /proc/sys, no machine-wide files.
        if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "subset=pid") != 0)
            missing("no /proc inside the jail: " + std::string(std::strerror(errno)));
    }
    mount_attr read_only{};
    read_only.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (::mount_setattr(AT_FDCWD, "/", 0, &read_only, sizeof read_only) != 0)
        return fail_errno(errno, "making the jail's root read-only");
    return {};
}

Result<void> check_without_namespaces(const JailSpec& spec, const SayMissing& missing) {
    for (const JailBind& bind : spec.binds)
        if (bind.source != bind.target)
            return fail(Code::Unavailable,
                        "cannot show " + bind.source + " as " + bind.target +
                            ": this user may not make a mount namespace (allow user namespaces, or "
                            "run as root)");
    if (spec.scratch) missing("no mount namespace: the scratch folder is the host's /tmp");
    missing(
        "no namespaces: the instance sees the host's files, processes and network as far as its "
        "uid may");
    return {};
}

}  // namespace

std::string inner_binary(const JailSpec& spec) {
    if (!spec.namespaces) return spec.binary;
    return "/plugin" + spec.binary.substr(spec.binary.rfind('/'));
}

Result<void> build_root(const JailSpec& spec, const Profile& profile, const SayMissing& missing) {
    for (const JailBind& bind : spec.binds)
        if (bind.owned && spec.uid != 0) HF_TRY(own_directory(bind.source, spec.uid));
    if (!spec.namespaces) return check_without_namespaces(spec, missing);
    const bool own_network = !spec.network && !spec.given_network;
    const int flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (own_network ? CLONE_NEWNET : 0);
    if (::unshare(flags) != 0) return fail_errno(errno, "making namespaces");
    if (spec.given_network) {
        if (::setns(layout::kNetworkFd, CLONE_NEWNET) != 0)
            return fail_errno(errno, "joining the empty network namespace");
        ::close(layout::kNetworkFd);
    }
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return fail_errno(errno, "making mounts private");

    std::vector<Piece> pieces;
    std::vector<std::pair<std::string, std::string>> links;
    HF_TRY(gather_system(profile, pieces, links));
    HF_ASSIGN(Piece binary, clone_tree(spec.binary, inner_binary(spec), false));
    pieces.push_back(std::move(binary));
    for (const JailBind& bind : spec.binds) {
        HF_ASSIGN(Piece piece, clone_tree(bind.source, bind.target, bind.writable));
        pieces.push_back(std::move(piece));
    }

    HF_ASSIGN(const std::string staging, mount_staging());
    for (const auto& [path, target] : links)
        if (::symlink(target.c_str(), (staging + path).c_str()) != 0)
            return fail_errno(errno, "linking " + path + " inside the jail");
    HF_TRY(enter_root(staging));
    for (const Piece& piece : pieces) HF_TRY(place(piece, ""));
    return mount_inner(spec, profile, missing);
}

}  // namespace hf::jail
