/* Functions of glibc newer than 2.28, for libraries that are linked to run with that one
 * (link_stubs.py). Each does what the C library's own does; none is visible outside of the library
 * that it is linked into. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct stat;

/* libstdc++ counts references without atomics while a process has one thread. Since 2.32 it asks
 * this; 0 is always right. */
char __libc_single_threaded = 0;

/* Before 2.33 these four are inline functions around the following, which newer versions keep for
 * programs that were built then. */
extern int __xstat(int version, const char* path, struct stat* result);
extern int __lxstat(int version, const char* path, struct stat* result);
extern int __fxstat(int version, int descriptor, struct stat* result);
extern int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);
#ifdef __x86_64__
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif
int stat(const char* path, struct stat* result) { return __xstat(kStatVersion, path, result); }
int lstat(const char* path, struct stat* result) { return __lxstat(kStatVersion, path, result); }
int fstat(int descriptor, struct stat* result) {
  return __fxstat(kStatVersion, descriptor, result);
}
int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.29 */
int getcpu(unsigned* cpu, unsigned* node) { return (int)syscall(SYS_getcpu, cpu, node, 0); }

/* 2.30. As libstdc++ waits where this is missing: on the other clock, for what is left, and the
 * caller looks at the time again. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now, left;
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  if (clock_gettime(clock, &now) != 0) return errno;
  left.tv_sec = until->tv_sec - now.tv_sec;
  left.tv_nsec = until->tv_nsec - now.tv_nsec;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return errno;
  now.tv_sec += left.tv_sec;
  now.tv_nsec += left.tv_nsec;
  if (now.tv_nsec < 0) now.tv_sec -= 1, now.tv_nsec += 1000000000;
  if (now.tv_nsec >= 1000000000) now.tv_sec += 1, now.tv_nsec -= 1000000000;
  return pthread_cond_timedwait(condition, mutex, &now);
}
