// The record of a process in a job that a test makes up.
#pragma once

#include <string>

#include "transport/mesh/exchange.h"
#include "transport/security/identity.h"

namespace hccl_like {

// The only rank of its host; the hosts are called host0, host1, ...
inline ProcessRecord record_of(int rank) {
  ProcessRecord record;
  record.id = std::string(kIdDigits, static_cast<char>('a' + rank));
  record.nonce = std::string(kNonceDigits, '0');
  record.host = record.hostname = "host" + std::to_string(rank);
  record.pid = 100 + rank;
  return record;
}

}  // namespace hccl_like
