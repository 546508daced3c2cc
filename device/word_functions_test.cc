#include "device/word_functions.h"

#include <gtest/gtest.h>

#include <atomic>

#include "device/device.h"
#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

using fake_device::kStream;

hcd_api without_host_func() {
  hcd_api api = fake_device::make_api();
  api.host_func = nullptr;
  return api;
}

const hcd_api& by_words() {
  static const hcd_api table = without_host_func();
  return table;
}

TEST(WordFunctions, AreUsedWhereThereIsNoHostFunc) {
  const Device device(by_words());
  EXPECT_TRUE(device.can_queue_functions());
  EXPECT_FALSE(device.has_host_func());
}

TEST(WordFunctions, OfOneStreamDoNotHoldUpAnother) {
  const Device device(by_words());
  const DeviceStream other = device.make_stream(0, kStream).value();
  std::atomic<bool> passed{false};
  throw_if(device.host_function(
      0, kStream,
      [](void* arg) {
        auto& its = *static_cast<std::atomic<bool>*>(arg);
        its.wait(false);
      },
      &passed));
  throw_if(device.host_function(
      0, other.get(),
      [](void* arg) {
        auto& its = *static_cast<std::atomic<bool>*>(arg);
        its = true;
        its.notify_all();
      },
      &passed));
  EXPECT_EQ(device.synchronize(0, other.get()), std::nullopt);
  EXPECT_EQ(device.synchronize(0, kStream), std::nullopt);
}

TEST(WordFunctions, SeeWhatTheStreamDidBeforeThem) {
  const Device device(by_words());
  void* const base = fake_device::allocate(1);
  uint64_t gate = 0;
  unsigned char value = 7;
  throw_if(device.copy_from_host(0, {base, 0}, &value, 1, 0));
  struct Seen {
    unsigned char copied = 0, by_function = 0;
  } seen;
  throw_if(device.wait_for_word(0, kStream, &gate, 1));
  throw_if(device.copy_to_host(0, &seen.copied, {base, 0}, 1, kStream));
  throw_if(device.host_function(
      0, kStream,
      [](void* arg) {
        auto& its = *static_cast<Seen*>(arg);
        its.by_function = its.copied;
      },
      &seen));
  __atomic_store_n(&gate, uint64_t{1}, __ATOMIC_RELEASE);
  throw_if(device.synchronize(0, kStream));
  EXPECT_EQ(seen.by_function, 7);
  fake_device::free(base);
}

// The stream goes on behind a function that was refused, and behind those that come after it.
TEST(WordFunctions, ThatAreRefusedDoNotRun) {
  static bool refuses = false;
  hcd_api api = without_host_func();
  api.stream_wait_value = [](int device, hcd_stream stream, const volatile uint64_t* word,
                             uint64_t value) {
    if (refuses) return fake_device::fail(HCD_OUT_OF_MEMORY, "the queue is full");
    return fake_device::make_api().stream_wait_value(device, stream, word, value);
  };
  const Device device(api);
  int count = 0;
  const auto add = [](void* arg) { ++*static_cast<int*>(arg); };
  throw_if(device.host_function(0, kStream, add, &count));
  refuses = true;
  EXPECT_EQ(device.host_function(0, kStream, add, &count),
            (Error{ErrorCode::kDevice,
                   "fake:0 could not queue a host function (stream_wait_value of its plugin): the "
                   "queue is full"}));
  refuses = false;
  throw_if(device.host_function(0, kStream, add, &count));
  throw_if(device.synchronize(0, kStream));
  EXPECT_EQ(count, 2);
}

TEST(WordFunctions, WithoutAStreamRunAtOnce) {
  const Device device(by_words());
  int count = 0;
  throw_if(device.host_function(0, 0, [](void* arg) { ++*static_cast<int*>(arg); }, &count));
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace hccl_like
