#pragma once
// Fixture of the tests in plugin_contract.h.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"

namespace hccl_like {

// A plugin, and the parts that torch provides: memory and streams.
struct PluginUnderTest {
  std::string name;
  const hcd_api* api;
  // Memory of device 0, as from storage().data_ptr().
  std::function<void*(size_t bytes)> allocate;
  std::function<void(void* base)> free;
  // Streams of device 0 to test, 0 first. A plugin-made stream is added if supported.
  std::vector<hcd_stream> streams;
};

inline std::string plugin_name(const ::testing::TestParamInfo<PluginUnderTest>& plugin) {
  return plugin.param.name;
}
inline void PrintTo(const PluginUnderTest& plugin, std::ostream* out) { *out << plugin.name; }

class PluginContract : public ::testing::TestWithParam<PluginUnderTest> {
 protected:
  static constexpr size_t kBytes = 70'001;  // odd, and several pages
  static constexpr int kIndex = 0;

  PluginContract()
      : device_(*GetParam().api), base_(GetParam().allocate(kBytes)), streams_(GetParam().streams) {
    if (!device_.can_make_streams()) return;
    made_ = device_.make_stream(kIndex, streams_.back()).value();
    streams_.push_back(made_.get());
  }
  ~PluginContract() override { GetParam().free(base_); }

  hcd_ref at(uint64_t offset) const { return {base_, offset}; }

  static std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
    std::vector<unsigned char> data(bytes);
    for (size_t i = 0; i < bytes; ++i)
      data[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
    return data;
  }

  void write(uint64_t offset, const std::vector<unsigned char>& data, hcd_stream stream) {
    throw_if(device_.copy_from_host(kIndex, at(offset), data.data(), data.size(), stream));
    throw_if(device_.synchronize(kIndex, stream));
  }
  std::vector<unsigned char> read(uint64_t offset, size_t bytes, hcd_stream stream) {
    std::vector<unsigned char> data(bytes);
    throw_if(device_.copy_to_host(kIndex, data.data(), at(offset), bytes, stream));
    throw_if(device_.synchronize(kIndex, stream));
    return data;
  }

  // Host memory that the device copies in stream order: its own if it has such.
  class HostData {
   public:
    HostData(const Device& device, std::vector<unsigned char> data) : data_(std::move(data)) {
      if (!device.can_allocate_host()) return;
      own_ = device.allocate_host(kIndex, data_.size()).value();
      std::memcpy(own_.data(), data_.data(), data_.size());
    }
    unsigned char* begin() {
      return own_.data() != nullptr ? reinterpret_cast<unsigned char*>(own_.data()) : data_.data();
    }

   private:
    std::vector<unsigned char> data_;
    MappedRange own_;
  };

  // Blocks a stream until opened. The destructor waits until the stream has passed.
  class Gate {
   public:
    Gate(const Device& device, hcd_stream stream) {
      if (device.can_wait_on_words()) {
        throw_if(device.wait_for_word(kIndex, stream, &opened_, 1));
        throw_if(device.write_word(kIndex, stream, &passed_, 1));
        return;
      }
      const auto wait = [](void* gate) {
        const auto self = static_cast<Gate*>(gate);
        while (std::atomic_ref(self->opened_).load() == 0) std::this_thread::yield();
        std::atomic_ref(self->passed_).store(1);
      };
      throw_if(device.host_function(kIndex, stream, wait, this));
    }
    ~Gate() {
      open();
      while (std::atomic_ref(passed_).load() == 0) std::this_thread::yield();
    }
    void open() { std::atomic_ref(opened_).store(1); }

   private:
    alignas(8) uint64_t opened_ = 0;
    alignas(8) uint64_t passed_ = 0;
  };
  bool can_close_gates() const {
    return device_.can_wait_on_words() || device_.can_queue_functions();
  }

  Device device_;
  void* base_;
  DeviceStream made_;
  std::vector<hcd_stream> streams_;
};

}  // namespace hccl_like
