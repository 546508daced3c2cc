#pragma once
// The identity of a process, and the key that proves it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/network/process_record.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// Drawn anew by every process for every Mesh: an id names one process of one generation of a job.
// The group's records map ids to ranks (exchange.h).
struct Identity {
  std::string id;     // kIdDigits
  std::string nonce;  // kNonceDigits; readable in the store only, never sent
  // Derived from job key, id and nonce: needs the job's secret and this process's record.
  Key door;
};

// Throws kMisuse if id or nonce have a wrong length. `sealed`: tcp traffic to the process is
// encrypted. The key depends on `sealed`, so ends that differ in it do not authenticate.
Identity make_identity(const JobKey& job, std::string id, std::string nonce, bool sealed = false);
// With a fresh random id and nonce.
Identity new_identity(const JobKey& job, bool sealed = false);

}  // namespace hccl_like
