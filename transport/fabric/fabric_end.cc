#include "transport/fabric/fabric_end.h"

#include <rdma/fi_cm.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "device/host/shared_memory.h"

namespace hccl_like {
namespace {

constexpr size_t kCompletionsAtOnce = 16;
constexpr size_t kLongestName = 512;

// Enough for some tens of allocator ranges per process.
constexpr RegistrationCache::Limits kKept{.entries = 256, .bytes = size_t{64} << 30};

// Only these owners are known: all other memory may be freed and replaced without notice.
std::optional<LastingRange> lasting_range(const std::byte* data, size_t bytes) {
  if (const auto place = SharedMemory::find(data, bytes))
    return LastingRange{data - place->offset, place->token.bytes, place->token.nonce};
  if (const auto memory = ExportedMemory::find(data, bytes))
    return LastingRange{memory->data(), memory->size(), memory->identity()};
  return std::nullopt;
}

// rdma/fi_domain.h of libfabric 1.20 declares these; its further fields of fi_mr_attr are zero.
constexpr uint64_t kRegisterFile = uint64_t{1} << 40;  // FI_MR_DMABUF
struct FileRange {                                     // fi_mr_dmabuf
  int fd;
  uint64_t offset;
  size_t bytes;
  void* base;  // base of the peer's addresses
};
struct LargerAttributes {
  fi_mr_attr known{};
  std::array<uint64_t, 8> unknown{};
};

}  // namespace

FabricEnd::FabricEnd(const FabricLibrary& library, FabricInfo info)
    : library_(library), info_(std::move(info)), registrations_(*this, lasting_range, kKept) {
  fid_fabric* fabric = nullptr;
  check("fi_fabric", library_.fabric(info_->fabric_attr, &fabric, nullptr));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr));
  domain_.reset(domain);
  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type;
  fid_av* addresses = nullptr;
  check("fi_av_open", fi_av_open(domain, &av_attr, &addresses, nullptr));
  addresses_.reset(addresses);
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_CONTEXT;
  cq_attr.wait_obj = FI_WAIT_NONE;
  fid_cq* completions = nullptr;
  check("fi_cq_open", fi_cq_open(domain, &cq_attr, &completions, nullptr));
  completions_.reset(completions);
  endpoint_ = make_endpoint(*info_, address_);
}

FabricObject<fid_ep> FabricEnd::make_endpoint(fi_info& info, std::string& address) const {
  fid_ep* endpoint = nullptr;
  check("fi_endpoint", fi_endpoint(domain_.get(), &info, &endpoint, nullptr));
  FabricObject<fid_ep> owned(endpoint);
  check("fi_ep_bind", fi_ep_bind(endpoint, &addresses_->fid, 0));
  check("fi_ep_bind", fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_RECV));
  check("fi_enable", fi_enable(endpoint));
  address.resize(kLongestName);
  size_t bytes = address.size();
  check("fi_getname", fi_getname(&endpoint->fid, address.data(), &bytes));
  address.resize(bytes);
  return owned;
}

// Operations in flight end with the endpoint; free their memory afterwards.
FabricEnd::~FabricEnd() {
  registrations_.clear();
  endpoint_.reset();
  buried_.clear();
}

void FabricEnd::check(const char* function, long status) const {
  if (status >= 0) return;
  throw_error(ErrorCode::kUnsupported, std::string("libfabric's provider ") +
                                           info_->fabric_attr->prov_name + " fails in " + function +
                                           ": " + library_.strerror(static_cast<int>(-status)));
}

fi_addr_t FabricEnd::insert(const std::string& address) {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  // Pads beyond any provider's address length: the text is untrusted.
  std::string padded = address;
  padded.resize(std::max(address.size() + 1, kLongestName));
  if (fi_av_insert(addresses_.get(), padded.data(), 1, &peer, 0, nullptr) != 1)
    throw_error(ErrorCode::kPeerLost, std::string("libfabric's provider ") +
                                          info_->fabric_attr->prov_name +
                                          " cannot use the peer's address");
  return peer;
}

void FabricEnd::remove(fi_addr_t peer) { fi_av_remove(addresses_.get(), &peer, 1, 0); }

std::unique_ptr<FabricSlots> FabricEnd::make_slots(size_t slots, size_t bytes) {
  auto made = std::make_unique<FabricSlots>();
  made->memory = std::make_unique_for_overwrite<FabricSlots::Line[]>(slots * bytes /
                                                                     sizeof(FabricSlots::Line));
  made->operations = std::vector<FabricOperation>(slots);
  for (FabricOperation& one : made->operations) one.broken = &made->broken;
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return made;
  made->registration.reset(enroll(made->memory.get(), slots * bytes, FI_SEND | FI_RECV));
  return made;
}

fid_mr* FabricEnd::enroll(const void* data, size_t bytes, uint64_t access) {
  fid_mr* registration = nullptr;
  check("fi_mr_reg",
        fi_mr_reg(domain_.get(), data, bytes, access, 0, next_key_++, 0, &registration, nullptr));
  return enable(registration);
}

fid_mr* FabricEnd::enroll(const ExportedMemory& memory, const std::byte* data, size_t bytes) {
  const uint64_t offset = memory.file_offset() + static_cast<uint64_t>(data - memory.data());
  const FileRange range{memory.file(), offset, bytes, memory.data() - memory.file_offset()};
  LargerAttributes attributes;
  attributes.known.mr_iov = reinterpret_cast<const iovec*>(&range);  // a union with the dma-buf
  attributes.known.iov_count = 1;
  attributes.known.access = FI_READ | FI_REMOTE_READ;
  attributes.known.requested_key = next_key_++;
  attributes.known.iface = static_cast<fi_hmem_iface>(memory.hmem());
  attributes.known.device.reserved = static_cast<uint64_t>(memory.index());
  fid_mr* registration = nullptr;
  check("fi_mr_regattr",
        fi_mr_regattr(domain_.get(), &attributes.known, kRegisterFile, &registration));
  return enable(registration);
}

fid_mr* FabricEnd::enable(fid_mr* registration) {
  FabricObject<fid_mr> owned(registration);
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
    check("fi_mr_bind", fi_mr_bind(registration, &endpoint_->fid, 0));
    check("fi_mr_enable", fi_mr_enable(registration));
  }
  return owned.release();
}

void* FabricEnd::add(const std::byte* data, size_t bytes) {
  try {
    if (const auto memory = ExportedMemory::find(data, bytes)) return enroll(*memory, data, bytes);
    return enroll(data, bytes, FI_READ | FI_REMOTE_READ);
  } catch (const Exception&) {
    return nullptr;  // no room, or memory that cannot be pinned: use blocks
  }
}

void FabricEnd::remove(void* registration) { fi_close(&static_cast<fid_mr*>(registration)->fid); }

// Without FI_MR_VIRT_ADDR addresses are offsets into the registration.
FabricEnd::Window FabricEnd::window(const RegistrationCache::Registration& registration,
                                    const std::byte* data) const {
  const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  return {.base = virtual_addresses ? reinterpret_cast<uintptr_t>(data)
                                    : static_cast<uint64_t>(data - registration.begin),
          .key = fi_mr_key(static_cast<fid_mr*>(registration.handle))};
}

void FabricEnd::shut(std::string why) {
  if (!is_open()) return;
  why_shut_ = std::move(why);
  endpoint_.reset();
}

// Peers know the old address. Registrations may belong to the old endpoint.
bool FabricEnd::reopen() {
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) return false;
  const FabricInfo info(library_.dupinfo(info_.get()), FreeInfo{&library_});
  std::free(info->src_addr);
  info->src_addr = std::malloc(address_.size());
  info->src_addrlen = address_.size();
  std::memcpy(info->src_addr, address_.data(), address_.size());
  std::array<fi_cq_entry, kCompletionsAtOnce> old;
  fi_cq_err_entry error{};
  for (ssize_t got = 1; got > 0;) {
    got = fi_cq_read(completions_.get(), old.data(), old.size());
    if (got == -FI_EAVAIL) got = fi_cq_readerr(completions_.get(), &error, 0);
  }
  try {
    std::string address;
    FabricObject<fid_ep> endpoint = make_endpoint(*info, address);
    if (address != address_) return false;
    endpoint_ = std::move(endpoint);
  } catch (const Exception&) {
    return false;
  }
  ++opening_;
  return true;
}

void FabricEnd::progress() {
  if (!is_open()) return;
  std::array<fi_cq_entry, kCompletionsAtOnce> entries;
  for (;;) {
    const ssize_t got = fi_cq_read(completions_.get(), entries.data(), entries.size());
    if (got == -FI_EAVAIL) {
      on_error();
      continue;
    }
    if (got <= 0) return;
    for (size_t i = 0; i < static_cast<size_t>(got); ++i)
      if (entries[i].op_context != nullptr)
        static_cast<FabricOperation*>(entries[i].op_context)->done = true;
    if (static_cast<size_t>(got) < entries.size()) return;
  }
}

void FabricEnd::on_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(completions_.get(), &entry, 0) <= 0 || entry.op_context == nullptr) return;
  auto& operation = *static_cast<FabricOperation*>(entry.op_context);
  operation.done = operation.failed = true;
  if (entry.err != FI_ECANCELED && operation.broken != nullptr && operation.broken->empty())
    *operation.broken = library_.strerror(entry.err);
}

}  // namespace hccl_like
