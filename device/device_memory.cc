// Device-local operations, and memory that the plugin allocates, registers or exports.
#include <cstddef>

#include "device/device.h"

namespace hccl_like {
namespace {

constexpr hcd_type kTypes[kDataTypes] = {
    HCD_FLOAT32, HCD_FLOAT64, HCD_FLOAT16, HCD_BFLOAT16,  HCD_FLOAT8_E4M3FN, HCD_FLOAT8_E5M2,
    HCD_INT8,    HCD_INT16,   HCD_INT32,   HCD_INT64,     HCD_UINT8,         HCD_UINT16,
    HCD_UINT32,  HCD_UINT64,  HCD_BOOL,    HCD_COMPLEX64, HCD_COMPLEX128};

// kAvg and kPreMulSum sum; the caller applies the factor.
constexpr hcd_op kOps[kReduceOps] = {HCD_SUM,     HCD_SUM,    HCD_PRODUCT, HCD_MIN, HCD_MAX,
                                     HCD_BIT_AND, HCD_BIT_OR, HCD_BIT_XOR, HCD_SUM};

}  // namespace

std::optional<Error> Device::copy_within(int index, hcd_ref to, hcd_ref from, size_t bytes,
                                         hcd_stream stream) const {
  constexpr Attempt kAttempt{"copy within itself", "copy_d2d"};
  if (!can_copy_within()) return unsupported(index, kAttempt);
  return check(api_.copy_d2d(index, to, from, bytes, stream), index, kAttempt);
}

std::optional<Error> Device::reduce(int index, hcd_ref inout, hcd_ref in, size_t elements,
                                    DataType type, ReduceOp op, hcd_stream stream) const {
  constexpr Attempt kAttempt{"reduce", "reduce"};
  if (!can_reduce()) return unsupported(index, kAttempt);
  return check(api_.reduce(index, inout, in, elements, kTypes[static_cast<size_t>(type)],
                           kOps[static_cast<size_t>(op)], stream),
               index, kAttempt);
}

std::optional<Error> Device::reduce_many(int index, hcd_ref out, std::span<const hcd_ref> sources,
                                         size_t elements, DataType type, ReduceOp op,
                                         Scaling scaling, hcd_stream stream) const {
  constexpr Attempt kAttempt{"reduce many sources", "reduce_many"};
  if (!can_reduce_many()) return unsupported(index, kAttempt);
  return check(
      api_.reduce_many(index, out, sources.data(), static_cast<uint32_t>(sources.size()), elements,
                       kTypes[static_cast<size_t>(type)], kOps[static_cast<size_t>(op)],
                       scaling.input, scaling.result, stream),
      index, kAttempt);
}

std::optional<Error> Device::all_reduce_small(int index, const SmallGroup& group, hcd_ref out,
                                              hcd_ref in, size_t elements, DataType type,
                                              ReduceOp op, Scaling scaling,
                                              hcd_stream stream) const {
  constexpr Attempt kAttempt{"make an all-reduction as one kernel", "all_reduce_small"};
  if (!can_all_reduce_small()) return unsupported(index, kAttempt);
  const hcd_small_group ranks{.size = sizeof ranks,
                              .rank = static_cast<uint32_t>(group.rank),
                              .ranks = static_cast<uint32_t>(group.areas.size()),
                              .payload = group.payload,
                              .areas = group.areas.data(),
                              .state = group.state,
                              .stop = group.stop,
                              .completed = group.completed,
                              .fingerprint = group.fingerprint};
  return check(
      api_.all_reduce_small(index, &ranks, out, in, elements, kTypes[static_cast<size_t>(type)],
                            kOps[static_cast<size_t>(op)], scaling.input, scaling.result, stream),
      index, kAttempt);
}

Result<MappedRange> Device::allocate(int index, size_t bytes) const {
  constexpr Attempt kAttempt{"allocate memory", "mem_alloc"};
  if (!can_allocate()) return unsupported(index, kAttempt);
  void* base = nullptr;
  if (auto error = check(api_.mem_alloc(index, bytes, &base), index, kAttempt)) return *error;
  return MappedRange(*this, api_.mem_free, {"free memory", "mem_free"}, index, base, bytes);
}

Result<MappedRange> Device::allocate_host(int index, size_t bytes) const {
  constexpr Attempt kAttempt{"allocate host memory", "host_alloc"};
  if (!can_allocate_host()) return unsupported(index, kAttempt);
  void* host = nullptr;
  if (auto error = check(api_.host_alloc(index, bytes, &host), index, kAttempt)) return *error;
  return MappedRange(*this, api_.host_free, {"free host memory", "host_free"}, index, host, bytes);
}

Result<MappedRange> Device::register_host(int index, void* host, size_t bytes) const {
  constexpr Attempt kAttempt{"register host memory", "host_register"};
  if (!can_register_host()) return unsupported(index, kAttempt);
  if (auto error = check(api_.host_register(index, host, bytes), index, kAttempt)) return *error;
  return MappedRange(*this, api_.host_unregister, {"unregister host memory", "host_unregister"},
                     index, host, bytes);
}

Result<ExportedFile> Device::export_file(int index, hcd_ref ref, size_t bytes) const {
  constexpr Attempt kAttempt{"export memory to other devices", "export_fd"};
  if (!can_export_files()) return unsupported(index, kAttempt);
  ExportedFile exported;
  int fd = -1;
  const int status = dmabuf_->export_fd(index, ref, bytes, &fd, &exported.offset);
  if (auto error = check(status, index, kAttempt)) return *error;
  exported.file.reset(fd);
  return exported;
}

bool Device::can_identify() const noexcept {
  constexpr size_t kEnd = offsetof(hcd_dmabuf, identify) + sizeof(hcd_dmabuf::identify);
  return dmabuf_ != nullptr && dmabuf_->head.size >= kEnd && dmabuf_->identify != nullptr;
}

std::optional<Error> Device::flush(int index) const {
  constexpr size_t kEnd = offsetof(hcd_dmabuf, flush) + sizeof(hcd_dmabuf::flush);
  if (dmabuf_ == nullptr || dmabuf_->head.size < kEnd || dmabuf_->flush == nullptr)
    return std::nullopt;
  return check(dmabuf_->flush(index), index, {"flush what was written to its memory", "flush"});
}

Result<DeviceAllocation> Device::identify(int index, hcd_ref ref, size_t bytes) const {
  constexpr Attempt kAttempt{"tell what allocation memory lies in", "identify"};
  if (!can_identify()) return unsupported(index, kAttempt);
  hcd_allocation found{};
  found.size = sizeof found;
  if (auto error = check(dmabuf_->identify(index, ref, bytes, &found), index, kAttempt))
    return *error;
  return DeviceAllocation{.identity = {found.identity[0], found.identity[1]},
                          .begin = found.begin,
                          .bytes = found.bytes,
                          .offset = found.offset,
                          .address = found.address,
                          .hmem = found.hmem};
}

}  // namespace hccl_like
