#pragma once
// Who a process is, and what proves it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/network/process_record.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// Drawn anew by every process for every Mesh, so that an id stands for a job, a generation of it,
// and one process there. Its rank in a group is what the group's records say (exchange.h).
struct Identity {
  std::string id;     // kIdDigits
  std::string nonce;  // kNonceDigits; stands in the store, and is shown to nobody
  // Made of the job's key, id and nonce: known to those who have the job's secret and have read
  // this process's record.
  Key door;
};

// Throws kMisuse if id or nonce are of another length. `sealed`: what goes over tcp to it is
// encrypted. Ends that differ in that have different keys.
Identity make_identity(const JobKey& job, std::string id, std::string nonce, bool sealed = false);
// With an id and a nonce that nobody had before.
Identity new_identity(const JobKey& job, bool sealed = false);

}  // namespace hccl_like
