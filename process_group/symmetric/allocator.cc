#include "process_group/symmetric/allocator.h"

#include <unistd.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <utility>
#include <vector>

#include "core/base/error.h"
#include "process_group/backend/backend.h"
#include "process_group/backend/store.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/symmetric/operators.h"

namespace hccl_like {
namespace {

namespace symm = c10d::symmetric_memory;

// Members of a process group, or of a group from set_group_info().
struct Members {
  int rank;
  int ranks;
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout;
  std::string communicator{};  // communicator id if the group uses this backend
};

std::chrono::milliseconds timeout_of(c10d::ProcessGroup& group) {
  try {
    return group.getDefaultBackend()->getBackendOptions()->timeout;
  } catch (const c10::Error&) {
    return group.getStore()->getTimeout();  // a backend without options
  }
}

std::string communicator_of(c10d::ProcessGroup& group, c10::DeviceType type) {
  try {
    const auto backend = c10::dynamic_intrusive_pointer_cast<Backend>(group.getBackend(type));
    const auto communicator = backend ? backend->communicator() : nullptr;
    return communicator ? std::to_string(communicator->id()) : "";
  } catch (const c10::Error&) {
    return "";  // no backend for such a device
  }
}

Members members_of(const std::string& name, c10::DeviceType type) {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  try {
    group = c10d::resolve_process_group(name);
  } catch (const c10::Error&) {
    const symm::GroupInfo& info = symm::get_group_info(name);  // throws if the group is unknown
    return {info.rank, info.world_size, info.store, info.store->getTimeout()};
  }
  return {group->getRank(), group->getSize(), group->getStore(), timeout_of(*group),
          communicator_of(*group, type)};
}

// Rethrows Exceptions as torch errors.
template <class Body>
auto as_torch(const char* where, Body&& body) {
  try {
    return body();
  } catch (const Exception& exception) {
    throw_torch_setup_error(exception.error(), where);
  }
}

}  // namespace

Allocator::Allocator(Devices& devices, c10::DeviceType type, Interpreter interpreter)
    : devices_(devices), type_(type), interpreter_(std::move(interpreter)) {}

Allocator::~Allocator() {
  // At program exit the devices may be gone; the system frees everything.
  if (symm::is_finalizing()) (void)state_.release();
}

c10::Device Allocator::device(int index) const {
  if (type_ == c10::kCPU) return c10::Device(c10::kCPU);
  if (index < 0) return c10::impl::VirtualGuardImpl(type_).getDevice();
  return c10::Device(type_, static_cast<c10::DeviceIndex>(index));
}

Allocator::Entry* Allocator::find(const void* ptr) {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(ptr));
  auto after = state_->entries.upper_bound(at);
  if (after == state_->entries.begin()) return nullptr;
  Entry& entry = std::prev(after)->second;
  return entry.allocation->holds(ptr) ? &entry : nullptr;
}

void* Allocator::alloc(size_t size, int device_idx, const std::optional<std::string>& group_name) {
  // Registered lazily, so that processes without allocations avoid registration errors.
  std::call_once(operators_, register_symmetric_operators, type_);
  return as_torch("SymmetricMemory.empty", [&] {
    if (type_ != c10::kCPU) interpreter_.prepare(type_);
    state_->limbo->sweep();
    auto allocation = std::make_shared<Allocation>(devices_.access(device(device_idx)), size,
                                                   symm::get_signal_pad_size(), state_->limbo);
    std::byte* const at = allocation->buffer();
    std::lock_guard lock(mutex_);
    Entry& entry = state_->entries[at];
    // Leaks a parent's entry in a forked child: the child does not own it.
    if (entry.allocation) (void)new Entry(std::move(entry));
    entry = {std::move(allocation), group_name, {}, ::getpid()};
    return at;
  });
}

void Allocator::free(void* ptr) {
  if (symm::is_finalizing()) return;
  std::map<std::byte*, Entry>::node_type
      freed;  // destroyed outside the lock: the destructor waits for the device
  {
    std::lock_guard lock(mutex_);
    const auto entry = state_->entries.find(static_cast<std::byte*>(ptr));
    if (entry == state_->entries.end() || entry->second.process != ::getpid())
      return;  // a forked child owns none of what its parent made
    freed = state_->entries.extract(entry);
  }
  if (!freed.empty()) freed.mapped() = {};
  state_->limbo->sweep();
}

size_t Allocator::get_alloc_size(void* ptr) {
  std::lock_guard lock(mutex_);
  Entry* const entry = find(ptr);
  TORCH_CHECK(entry != nullptr, "hccl-like: this is no symmetric memory");
  return entry->allocation->buffer_bytes();
}

bool Allocator::has_allocation(void* ptr) {
  std::lock_guard lock(mutex_);
  return find(ptr) != nullptr;
}

c10::intrusive_ptr<symm::SymmetricMemory> Allocator::rendezvous(
    void* ptr, const std::optional<std::string>& group_name) {
  std::shared_ptr<Allocation> allocation;
  std::string group;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = find(ptr);
    if (entry == nullptr) return nullptr;
    TORCH_CHECK_VALUE(group_name || entry->group,
                      "hccl-like: rendezvous needs the group, since empty_strided_p2p was not "
                      "given one");
    group = group_name ? *group_name : *entry->group;
    if (const auto known = entry->memories.find(group); known != entry->memories.end())
      return known->second;
    allocation = entry->allocation;
  }
  state_->limbo->sweep();
  auto memory =
      as_torch("SymmetricMemory.rendezvous", [&] { return meet(std::move(allocation), group); });
  std::lock_guard lock(mutex_);
  if (Entry* const entry = find(ptr)) entry->memories[group] = memory;
  return memory;
}

c10::intrusive_ptr<Memory> Allocator::meet(std::shared_ptr<Allocation> allocation,
                                           const std::string& group) {
  const Members members = members_of(group, type_);
  int number;
  {
    std::lock_guard lock(mutex_);
    Meetings& meetings = state_->meetings[group];
    if (meetings.store.get() != members.store.get()) meetings = {members.store, 0};
    number = meetings.count++;
  }
  const Handshake handshake{.group = group,
                            .communicator = members.communicator,
                            .prefix = "hccl-like/symmetric/" + members.communicator + "/" + group +
                                      "/" + name() + "/" + std::to_string(number),
                            .rank = members.rank,
                            .ranks = members.ranks};
  Acquaintance acquaintance;
  std::exception_ptr failure;
  interpreter_.unlocked([&] {
    try {
      C10dStore store(members.store);
      acquaintance =
          hccl_like::rendezvous(store, handshake, *allocation, Deadline::after(members.timeout));
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  allocation->share(acquaintance.signals);
  return c10::make_intrusive<Memory>(handshake, std::move(allocation), std::move(acquaintance),
                                     members.timeout, interpreter_.unlocked);
}

namespace {

std::vector<c10::weak_intrusive_ptr<Allocator>>& registered() {
  static auto& allocators = *new std::vector<c10::weak_intrusive_ptr<Allocator>>;
  return allocators;
}

}  // namespace

void sweep_symmetric_memory() {
  for (const auto& weak : registered())
    if (const auto allocator = weak.lock()) allocator->sweep();
}

void register_symmetric_memory(Devices& devices, const Interpreter& interpreter) {
  for (const c10::DeviceType type : {c10::DeviceType::CPU, c10::DeviceType::PrivateUse1}) {
    auto allocator = c10::make_intrusive<Allocator>(devices, type, interpreter);
    registered().emplace_back(allocator);
    symm::register_availability(allocator->name(), allocator);
    // A vendor's allocator has priority; symm_mem.set_backend("hccl-like") selects this one.
    if (!symm::has_allocator(type)) symm::register_allocator(type, allocator);
  }
}

}  // namespace hccl_like
