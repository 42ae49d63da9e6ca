/* Makes the n-th system call on files below a folder fail, as a full or failing disk, a lost right or a vanished mount
 * would. Preloaded, so that Python, Arrow's C++ and deltalake's Rust all meet it: they call the same C library.
 *
 *   void io_faults_arm(const char *root, long nth, int error, int kinds, int lasting)
 *   long io_faults_disarm(void)        calls of these kinds that were counted since
 *
 * `kinds` are those that count and fail; with `lasting`, every later one fails too. nth 0 only counts.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NAMES = 1, READS = 2, WRITES = 4 };

static char root[PATH_MAX];
static size_t root_length;
static atomic_int armed;
static atomic_long counted;
static long fail_at;
static int fail_with, fail_kinds, fail_lasting;

void io_faults_arm(const char *folder, long nth, int error, int kinds, int lasting) {
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    fail_at = nth, fail_with = error, fail_kinds = kinds, fail_lasting = lasting;
    counted = 0;
    armed = 1;
}

long io_faults_disarm(void) {
    armed = 0;
    return counted;
}

static int below(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int below_descriptor(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int fails(int kinds) {
    if (!(kinds & fail_kinds)) return 0;
    long number = ++counted;
    if (!fail_at || (fail_lasting ? number < fail_at : number != fail_at)) return 0;
    errno = fail_with;
    return 1;
}

static int fails_path(int directory, const char *path, int kinds) {
    if (!armed || !path) return 0;
    if (path[0] == '/' ? !below(path) : directory == AT_FDCWD || !below_descriptor(directory)) return 0;
    return fails(kinds);
}

static int fails_descriptor(int descriptor, int kinds) {
    if (!armed) return 0;
    int before = errno;
    int ours = below_descriptor(descriptor);
    errno = before;
    return ours && fails(kinds);
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int opened(int flags) { return NAMES | (flags & (O_CREAT | O_TRUNC) ? WRITES : 0); }

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) REAL(int, #name, const char *, int, ...); \
        return fails_path(AT_FDCWD, path, opened(flags)) ? -1 : real(path, flags, mode); }
#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        MODE(flags) REAL(int, #name, int, const char *, int, ...); \
        return fails_path(directory, path, opened(flags)) ? -1 : real(directory, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

#define READ(result, name, kind, parameters, arguments) \
    result name parameters { \
        static result (*real) parameters; \
        if (!real) real = (result (*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails_descriptor(descriptor, kind) ? -1 : real arguments; }
READ(ssize_t, read, READS, (int descriptor, void *data, size_t size), (descriptor, data, size))
READ(ssize_t, pread, READS, (int descriptor, void *data, size_t size, off_t at), (descriptor, data, size, at))
READ(ssize_t, pread64, READS, (int descriptor, void *data, size_t size, off64_t at), (descriptor, data, size, at))
READ(ssize_t, preadv, READS, (int descriptor, const struct iovec *parts, int count, off_t at),
     (descriptor, parts, count, at))
READ(ssize_t, preadv64, READS, (int descriptor, const struct iovec *parts, int count, off64_t at),
     (descriptor, parts, count, at))
READ(ssize_t, preadv2, READS, (int descriptor, const struct iovec *parts, int count, off_t at, int flags),
     (descriptor, parts, count, at, flags))
READ(ssize_t, preadv64v2, READS, (int descriptor, const struct iovec *parts, int count, off64_t at, int flags),
     (descriptor, parts, count, at, flags))
READ(ssize_t, write, WRITES, (int descriptor, const void *data, size_t size), (descriptor, data, size))
READ(ssize_t, writev, WRITES, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count))
READ(ssize_t, pwrite, WRITES, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at))
READ(ssize_t, pwrite64, WRITES, (int descriptor, const void *data, size_t size, off64_t at),
     (descriptor, data, size, at))
READ(int, fsync, WRITES, (int descriptor), (descriptor))
READ(int, fdatasync, WRITES, (int descriptor), (descriptor))
READ(int, ftruncate, WRITES, (int descriptor, off_t size), (descriptor, size))
READ(int, ftruncate64, WRITES, (int descriptor, off64_t size), (descriptor, size))
READ(int, fstat, NAMES, (int descriptor, struct stat *found), (descriptor, found))
READ(int, fstat64, NAMES, (int descriptor, struct stat64 *found), (descriptor, found))

DIR *fdopendir(int descriptor) {
    REAL(DIR *, "fdopendir", int);
    return fails_descriptor(descriptor, NAMES) ? NULL : real(descriptor);
}

DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *);
    return fails_path(AT_FDCWD, path, NAMES) ? NULL : real(path);
}

#define READDIR(name, entry) \
    struct entry *name(DIR *folder) { \
        REAL(struct entry *, #name, DIR *); \
        return fails_descriptor(dirfd(folder), READS) ? NULL : real(folder); }
READDIR(readdir, dirent) READDIR(readdir64, dirent64)

#define PATH(name, kind, parameters, directory, path, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) real = (int (*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails_path(directory, path, kind) ? -1 : real arguments; }
PATH(stat, NAMES, (const char *path, struct stat *found), AT_FDCWD, path, (path, found))
PATH(stat64, NAMES, (const char *path, struct stat64 *found), AT_FDCWD, path, (path, found))
PATH(lstat, NAMES, (const char *path, struct stat *found), AT_FDCWD, path, (path, found))
PATH(lstat64, NAMES, (const char *path, struct stat64 *found), AT_FDCWD, path, (path, found))
PATH(fstatat, NAMES, (int at, const char *path, struct stat *found, int flags), at, path, (at, path, found, flags))
PATH(fstatat64, NAMES, (int at, const char *path, struct stat64 *found, int flags), at, path, (at, path, found, flags))
PATH(statx, NAMES, (int at, const char *path, int flags, unsigned mask, struct statx *found), at, path,
     (at, path, flags, mask, found))
PATH(mkdir, NAMES | WRITES, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
PATH(mkdirat, NAMES | WRITES, (int at, const char *path, mode_t mode), at, path, (at, path, mode))
PATH(unlink, NAMES, (const char *path), AT_FDCWD, path, (path))
PATH(unlinkat, NAMES, (int at, const char *path, int flags), at, path, (at, path, flags))
PATH(rename, NAMES | WRITES, (const char *path, const char *to), AT_FDCWD, path, (path, to))
PATH(renameat, NAMES | WRITES, (int at, const char *path, int other, const char *to), at, path, (at, path, other, to))
PATH(link, NAMES | WRITES, (const char *path, const char *to), AT_FDCWD, path, (path, to))
PATH(linkat, NAMES | WRITES, (int at, const char *path, int other, const char *to, int flags), at, path,
     (at, path, other, to, flags))
