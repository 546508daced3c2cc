#include "process_group/device/device_capabilities.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace hccl_like {
namespace {

// Large enough for a copy engine, and not a multiple of any block size.
constexpr int64_t kCount = 5003;
constexpr int64_t kOffset = 1001;

void require(bool condition, const char* otherwise) {
  if (!condition) throw std::runtime_error(otherwise);
}

at::TensorOptions on(c10::Device device) { return at::TensorOptions(at::kFloat).device(device); }

at::Tensor numbers() { return at::arange(kCount, on(c10::kCPU)); }

struct Subject {
  c10::Device device;
  c10::Stream stream;
  c10::impl::VirtualGuardImpl guard;
};

void try_copies(const Subject& subject) {
  const at::Tensor sent = numbers();
  const at::Tensor there = at::empty({kCount}, on(subject.device));
  there.copy_(sent);
  const at::Tensor back = at::zeros({kCount}, on(c10::kCPU));
  back.copy_(there);
  require(at::equal(sent, back), "the data came back different");
}

// A device that mishandles views may copy whole storages. Equal sizes keep such copies in bounds.
void try_offset_copies(const Subject& subject) {
  const at::Tensor sent = numbers();
  const at::Tensor there = at::empty({kCount}, on(subject.device));
  there.copy_(sent);
  const at::Tensor part = there.narrow(0, kOffset, kOffset);
  const at::Tensor back = at::zeros({kCount}, on(c10::kCPU)).narrow(0, 0, kOffset);
  back.copy_(part);
  require(at::equal(back, sent.narrow(0, kOffset, kOffset)), "a view was read at the wrong place");
  part.copy_(at::zeros({kCount}, on(c10::kCPU)).narrow(0, 0, kOffset));
  const at::Tensor all = at::empty({kCount}, on(c10::kCPU));
  all.copy_(there);
  sent.narrow(0, kOffset, kOffset).zero_();
  require(at::equal(all, sent), "a view was written at the wrong place");
}

void try_pinned_memory(const Subject&) {
  const at::Tensor pinned = at::empty({kCount}, on(c10::kCPU).pinned_memory(true));
  require(pinned.is_pinned(), "is_pinned() is false for what was allocated so");
  pinned.copy_(numbers());
  require(at::equal(pinned, numbers()), "pinned memory does not keep what is written to it");
}

// Checks completion after a wait. Whether the copy is asynchronous cannot be observed.
void try_non_blocking_copies(const Subject& subject) {
  const at::Tensor sent = at::empty({kCount}, on(c10::kCPU).pinned_memory(true));
  const at::Tensor back = at::zeros({kCount}, on(c10::kCPU).pinned_memory(true));
  sent.copy_(numbers());
  const at::Tensor there = at::empty({kCount}, on(subject.device));
  there.copy_(sent, /*non_blocking=*/true);
  back.copy_(there, /*non_blocking=*/true);
  subject.guard.synchronizeStream(subject.stream);
  require(at::equal(back, sent), "the data is not there after a wait for the stream");
}

void try_stream_waits(const Subject& subject) { subject.guard.synchronizeStream(subject.stream); }

void try_events(const Subject& subject) {
  c10::Event event(subject.device.type());
  event.record(subject.stream);
  event.block(subject.guard.getStream(subject.device));
  event.synchronize();
}

void try_device_waits(const Subject& subject) {
  subject.guard.synchronizeDevice(subject.device.index());
}

void try_native_streams(const Subject& subject) {
  subject.guard.getStreamNativeHandle(subject.stream);
}

struct Question {
  Feature feature;
  const char* name;
  void (*attempt)(const Subject&);  // throws if absent; null: making the stream was the test
  const char* tried;
  const char* if_present;
  const char* if_absent;
};

constexpr Question kQuestions[] = {
    {Feature::kCopies, "copies", try_copies, "copied to the device and back",
     "tensors reach the network through copy_()", "no tensor of the device can be communicated"},
    {Feature::kOffsetCopies, "offset_copies", try_offset_copies,
     "copied part of a tensor to and fro",
     "large tensors are copied piece by piece while other pieces are on the network",
     "every tensor is copied in one piece, before and after the network"},
    {Feature::kPinnedMemory, "pinned_memory", try_pinned_memory,
     "allocated, and is_pinned() is true",
     "the host's side of a copy is pinned, and kept for the next one",
     "the host's side of a copy is ordinary memory"},
    {Feature::kNonBlockingCopies, "non_blocking_copies", try_non_blocking_copies,
     "copied to and fro, and waited for the stream",
     "a device whose plugin queues functions waits for no copy, unless its copies block all the "
     "same",
     "copies block the thread that makes them"},
    {Feature::kStreams, "streams", nullptr, "made a second stream",
     "copies of large calls run beside the current stream's work",
     "copies take their turn behind whatever the one stream has queued"},
    {Feature::kStreamWaits, "stream_waits", try_stream_waits, "waited for a stream",
     "a call waits for the current stream, then begins",
     "a call waits for an event, or for the whole device, then begins; where neither can be, "
     "copies that block keep the order"},
    {Feature::kEvents, "events", try_events, "recorded, made a stream wait, waited on the host",
     "Futures order the streams of whoever waits for them",
     "Futures do not name the device, whose work is over when they complete"},
    {Feature::kDeviceWaits, "device_waits", try_device_waits, "waited for the device",
     "barrier() waits for all streams of the device",
     "barrier() waits for the current stream only"},
    {Feature::kNativeStreams, "native_streams", try_native_streams, "asked for a stream's handle",
     "a plugin is given the device's own handle of a stream",
     "a plugin is given the stream's id alone"},
};

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string words = torch_error ? torch_error->what_without_backtrace() : error.what();
  if (const auto end = words.find_first_of("\n"); end != std::string::npos) words.resize(end);
  return words;
}

DeviceCapabilities::DeviceCapabilities(c10::Device device) {
  // Hides the probes from operator hooks and dispatch modes.
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const c10::impl::ExcludeDispatchKeyGuard unheard(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  const c10::DeviceGuard device_guard(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);

  std::string no_stream = "it has one stream";
  const auto make = [&](auto&& way) {
    if (stream_) return;
    try {
      const c10::Stream made = way();
      if (made != current) stream_ = made;
    } catch (const std::exception& error) {
      no_stream = words_of(error);
    }
  };
  make([&] { return guard.getNewStream(device); });
  make([&] { return guard.getStreamFromGlobalPool(device); });

  const Subject subject{device, stream_.value_or(current), guard};
  for (const Question& question : kQuestions) {
    bool present = stream_.has_value();
    std::string reason = present ? question.tried : no_stream;
    if (question.attempt != nullptr) {
      try {
        const c10::OptionalStreamGuard stream_guard(stream_);
        question.attempt(subject);
        present = true, reason = question.tried;
      } catch (const std::exception& error) {
        present = false, reason = words_of(error);
      }
    }
    list_.push_back({question.feature, question.name, present, std::move(reason),
                     present ? question.if_present : question.if_absent});
  }
}

bool DeviceCapabilities::has(Feature feature) const {
  for (const Capability& capability : list_) {
    if (capability.feature == feature) return capability.present;
  }
  return false;
}

const DeviceCapabilities& capabilities_of(c10::Device device) {
  static auto& mutex = *new std::mutex;
  static auto& asked = *new std::map<c10::DeviceIndex, DeviceCapabilities>;
  std::lock_guard lock(mutex);
  return asked.try_emplace(device.index(), device).first->second;
}

}  // namespace hccl_like
