/* From now on the process can start only so many threads more: `threads_left`, unless it is
 * negative. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

atomic_int threads_left = -1;

typedef int (*create_fn)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  int left = threads_left;
  while (left > 0 && !atomic_compare_exchange_weak(&threads_left, &left, left - 1)) {
  }
  if (left == 0) return EAGAIN;
  return ((create_fn)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, argument);
}
