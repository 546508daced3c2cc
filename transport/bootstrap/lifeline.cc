#include "transport/bootstrap/lifeline.h"

#include <charconv>

namespace hccl_like {

// The record is untrusted: an invalid port counts as none.
uint16_t lifeline_port(const ProcessRecord& record) {
  const auto found = record.ends.find(kLifelineEnd);
  if (found == record.ends.end()) return 0;
  const char* const end = found->second.data() + found->second.size();
  uint16_t port = 0;
  const auto read = std::from_chars(found->second.data(), end, port);
  return read.ec == std::errc() && read.ptr == end ? port : 0;
}

uint16_t listening_port(const ProcessRecord& record) {
  return record.port != 0 ? record.port : lifeline_port(record);
}

}  // namespace hccl_like
