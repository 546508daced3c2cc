#pragma once
// Test support: ranks as threads of one process, each with its own session and Issuer.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "process_group/backend/options.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/issue/issuer.h"
#include "process_group/testing/fake_accelerator.h"
#include "transport/testing/local_store.h"

namespace hccl_like::testing {

inline constexpr std::chrono::seconds kLong{20};

// Opens once, for all.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(opened_.wait_for(lock, kLong, [this] { return open_; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// One rank: an Issuer, and the objects that a Backend gives it.
struct Member {
  struct Named final : c10d::Backend {
    using c10d::Backend::Backend;
    const std::string getBackendName() const override { return kBackendName; }
  };

  Member(Devices& its_devices, FlightRecorder& recorder, LocalStore& store,
         const c10::intrusive_ptr<c10d::Store>& torch_store, int its_rank, int its_size)
      : rank(its_rank),
        size(its_size),
        devices(its_devices),
        session(std::make_shared<Session>(its_devices, recorder, ModulePaths{})),
        communicator(
            session->runtime().create(store, rank, size, "test", kLong, Deadline::after(kLong))),
        backend(c10::make_intrusive<Named>(rank, size)),
        diagnosis(*backend, options, recorder, session->counters(),
                  std::make_shared<FailureReport>(
                      recorder, session->runtime().config(), torch_store,
                      FailureReport::Group{communicator->id(), rank, size, kLong})),
        issuer(session, communicator, diagnosis) {}
  ~Member() { issuer.close(kLong); }

  c10::intrusive_ptr<Work> all_reduce(std::vector<at::Tensor>& tensors, bool async) {
    c10d::AllreduceOptions how;
    how.asyncOp = async;
    return issuer.issue(hccl_like::all_reduce(tensors, how));
  }

  const int rank;
  const int size;
  Devices& devices;
  const std::shared_ptr<Session> session;
  const std::shared_ptr<Communicator> communicator;
  const Options options;
  const c10::intrusive_ptr<Named> backend;
  Diagnosis diagnosis;
  Issuer issuer;
};

inline void use_own_stream(c10::Device device) {
  if (device != kStreams) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.exchangeStream(guard.getNewStream(device));
}

// Calls body(member) on a thread for each rank; an exception on any of them fails the test.
// `device`: the one that the test uses, which decides whether its plugin is registered.
inline void on_members(int size, c10::Device device, const std::function<void(Member&)>& body) {
  Devices devices;
  if (device == kStreams) devices.register_plugin("privateuseone", fake_plugin());
  static auto& recorder = *new FlightRecorder;  // as of a process
  LocalStore store;
  const auto torch_store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        use_own_stream(device);  // a call on another rank's would wait for that rank's
        Member member(devices, recorder, store, torch_store, rank, size);
        body(member);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << words_of(error);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Small whole numbers, so that every order of summation is exact.
inline at::Tensor numbers(int rank, int64_t count) {
  return (at::arange(count, at::kLong) * 7 + rank * 3).remainder(61).to(at::kFloat);
}
inline at::Tensor sum_of_numbers(int ranks, int64_t count) {
  at::Tensor sum = at::zeros({count}, at::kFloat);
  for (int rank = 0; rank < ranks; ++rank) sum += numbers(rank, count);
  return sum;
}
inline at::Tensor on(c10::Device device, const at::Tensor& values) {
  if (device.is_cpu()) return values.clone();
  return at::empty(values.sizes(), values.options().device(device)).copy_(values);
}
inline at::Tensor back(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(c10::kCPU)).copy_(tensor);
}

// The message of the exception that `run` throws; empty if it throws none.
inline std::string thrown_by(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return words_of(error);
  }
  return {};
}

// Makes the call until it throws; in stream order a later call tells of the failure of one. The
// message, or empty after ten calls.
inline std::string first_error(Member& me, const std::function<c10::intrusive_ptr<Work>()>& call) {
  std::string error;
  for (int calls = 0; calls < 10 && error.empty(); ++calls)
    error = thrown_by([&] {
      if (const auto work = call()) work->wait();
      me.issuer.settle();
    });
  return error;
}

inline std::string device_name(const ::testing::TestParamInfo<c10::Device>& info) {
  if (info.param.is_cpu()) return "Host";
  return info.param == kBare ? "Bare" : "Streams";
}

}  // namespace hccl_like::testing
