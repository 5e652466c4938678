/* Lets system calls of a program fail: loaded by LD_PRELOAD, switched by one byte of a shared file.
 *
 * FAULTS_SWITCH names the file, FAULTS_BELOW a further folder whose files are meant, beside those of
 * /proc and /sys. Byte 0 of the file: 0 lets everything through; 1 lets one open, read and write in
 * ten fail; 2 lets every open fail, as where no descriptor is left.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST_FDS 65536
#define ONE_IN 10

static volatile unsigned char *mode;
static const char *below = "";
static unsigned char meant[MOST_FDS]; /* whether a descriptor is of a file that is meant */
static __thread uint32_t state;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

__attribute__((constructor)) static void begin(void) {
  real_open = dlsym(RTLD_NEXT, "open64");
  real_openat = dlsym(RTLD_NEXT, "openat64");
  real_close = dlsym(RTLD_NEXT, "close");
  real_read = dlsym(RTLD_NEXT, "read");
  real_write = dlsym(RTLD_NEXT, "write");
  real_pread = dlsym(RTLD_NEXT, "pread64");
  real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
  if (getenv("FAULTS_BELOW")) below = getenv("FAULTS_BELOW");
  const char *path = getenv("FAULTS_SWITCH");
  int fd = path ? real_open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
  real_close(fd);
  if (page != MAP_FAILED) mode = page;
}

static int one_in_ten(void) {
  if (!state) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (uint32_t)now.tv_nsec ^ (uint32_t)getpid() << 8 ^ (uint32_t)(uintptr_t)&state;
    if (!state) state = 1;
  }
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state % ONE_IN == 0;
}

static int is_meant(const char *path) {
  return !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5) ||
         (*below && !strncmp(path, below, strlen(below)));
}

/* The error of an open that fails; 0 if it does not. */
static int open_error(const char *path, int flags) {
  if (!mode || !*mode || !is_meant(path)) return 0;
  if (*mode == 2) return EMFILE;
  if (!one_in_ten()) return 0;
  switch (state >> 8 & 3) {
    case 0: return EMFILE;
    case 1: return ENFILE;
    case 2: return ENOMEM;
    default: return (flags & O_ACCMODE) == O_RDONLY ? EIO : EROFS;
  }
}

static int opened(int fd, const char *path) {
  if (fd >= 0 && fd < MOST_FDS) meant[fd] = (unsigned char)is_meant(path);
  return fd;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  int error = open_error(path, flags);
  if (error) return errno = error, -1;
  return opened(real_open(path, flags, rights), path);
}

int openat64(int folder, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  int error = open_error(path, flags);
  if (error) return errno = error, -1;
  return opened(real_openat(folder, path, flags, rights), path);
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));
int openat(int folder, const char *path, int flags, ...) __attribute__((alias("openat64")));

int close(int fd) {
  if (fd >= 0 && fd < MOST_FDS) meant[fd] = 0;
  return real_close(fd);
}

/* Whether a read or write of a descriptor fails, with which error. */
static int transfer_error(int fd) {
  if (!mode || *mode != 1 || fd < 0 || fd >= MOST_FDS || !meant[fd] || !one_in_ten()) return 0;
  return state >> 8 & 1 ? EIO : ENOMEM;
}

ssize_t read(int fd, void *buffer, size_t size) {
  int error = transfer_error(fd);
  if (error) return errno = error, -1;
  return real_read(fd, buffer, size);
}

ssize_t write(int fd, const void *buffer, size_t size) {
  int error = transfer_error(fd);
  if (error) return errno = error, -1;
  return real_write(fd, buffer, size);
}

ssize_t pread64(int fd, void *buffer, size_t size, off_t at) {
  int error = transfer_error(fd);
  if (error) return errno = error, -1;
  return real_pread(fd, buffer, size, at);
}

ssize_t pwrite64(int fd, const void *buffer, size_t size, off_t at) {
  int error = transfer_error(fd);
  if (error) return errno = error, -1;
  return real_pwrite(fd, buffer, size, at);
}

ssize_t pread(int fd, void *buffer, size_t size, off_t at) __attribute__((alias("pread64")));
ssize_t pwrite(int fd, const void *buffer, size_t size, off_t at)
    __attribute__((alias("pwrite64")));
