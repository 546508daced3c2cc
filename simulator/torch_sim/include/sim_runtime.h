/* The simulator's runtime for programs in C: what a vendor's driver gives to those who write for
 * his device.
 *
 * Any thread may call any function. 0 is success; after anything else simGetLastErrorString has a
 * sentence for the calling thread. The functions are in libtorch_sim.so. */
#ifndef SIM_RUNTIME_H_
#define SIM_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum simError {
  simSuccess = 0,
  simErrorInvalidValue = 1,
  simErrorMemoryAllocation = 2,
  simErrorNotSupported = 3,
  simErrorUnknown = 4
} simError;

typedef enum simMemcpyKind { simMemcpyHostToDevice = 1, simMemcpyDeviceToHost = 2 } simMemcpyKind;

typedef struct simStream* simStream_t;

simError simGetDeviceCount(int* count);

simError simMalloc(int device, void** pointer, size_t bytes);
simError simFree(int device, void* pointer);

/* In the order of the stream, and done when it gets there. Without a stream: done when the call
 * returns. */
simError simMemcpyAsync(int device, void* to, const void* from, size_t bytes, simMemcpyKind kind,
                        simStream_t stream);
/* Null: all streams of the device. */
simError simStreamSynchronize(int device, simStream_t stream);
/* The stream that torch calls by this number. */
simError simStreamGet(int device, int64_t torch_id, simStream_t* stream);
/* Later work of the stream waits until fn has returned. It runs on a thread of the simulator. */
simError simLaunchHostFunc(int device, simStream_t stream, void (*fn)(void*), void* arg);

/* Where the host may read and write this memory, also while the device works with it. */
simError simHostGetPointer(int device, void** host, void* pointer, size_t bytes);

const char* simGetLastErrorString(void);

#ifdef __cplusplus
}
#endif

#endif /* SIM_RUNTIME_H_ */
