#include "collectives/stream/shared_words.h"

#include <cstring>
#include <limits>
#include <utility>

#include "core/base/log.h"
#include "device/host/shared_pool.h"

namespace hccl_like {

static_assert(SharedPool::kGrain == SharedWords::kWordBytes * SharedWords::kGrain);

SharedWords::SharedWords(const Communicator& communicator, const Device& device, int index,
                         const Device& host, size_t count)
    : communicator_(communicator),
      device_(device),
      index_(index),
      host_(host),
      bytes_(count * kWordBytes),
      begin_(static_cast<std::byte*>(SharedPool::of_process().allocate(bytes_))),
      peers_(static_cast<size_t>(communicator.size())) {
  std::memset(begin_, 0, bytes_);
  shown_ = host.export_range(0, {begin_, 0}, bytes_).value();
  if (device.can_register_host()) registered_ = device.register_host(index, begin_, bytes_).value();
}

SharedWords::~SharedWords() {
  registered_.reset();
  if (!communicator_.has_failed()) SharedPool::of_process().free(begin_);
}

bool SharedWords::reach(int peer, const ExportedRange& block) {
  std::byte*& begin = peers_[static_cast<size_t>(peer)];
  if (begin != nullptr) return true;
  auto view = communicator_.engine().peer_memory().open(host_, 0, block, bytes_, nullptr);
  if (!view.ok()) {
    log_info([&] { return "words cannot be shared: " + view.error().message; });
    return false;
  }
  if (device_.can_register_host()) {
    auto registered = device_.register_host(index_, view.value().data, bytes_);
    if (!registered.ok()) {
      log_info([&] { return "the device does not reach words: " + registered.error().message; });
      return false;
    }
    registrations_.push_back(std::move(registered).value());
  }
  begin = view.value().data;
  mappings_.push_back(std::move(view).value().mapping);
  return true;
}

void SharedWords::release(size_t first, size_t count) const {
  for (size_t number = first; number < first + count; ++number)
    __atomic_store_n(const_cast<uint64_t*>(own(number)), std::numeric_limits<uint64_t>::max(),
                     __ATOMIC_RELEASE);
}

}  // namespace hccl_like
