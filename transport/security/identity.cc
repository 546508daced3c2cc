#include "transport/security/identity.h"

#include <utility>

#include "core/base/error.h"
#include "transport/security/random.h"

namespace hccl_like {

Identity make_identity(const JobKey& job, std::string id, std::string nonce, bool sealed) {
  if (id.size() != kIdDigits || nonce.size() != kNonceDigits)
    throw_misuse("the id or the nonce of a process has the wrong length");
  Key door = job.key().derive(
      "door", {std::to_string(kProtocolVersion), id, nonce, sealed ? "sealed" : "plain"});
  return {std::move(id), std::move(nonce), door};
}

Identity new_identity(const JobKey& job, bool sealed) {
  return make_identity(job, random_hex(kIdDigits / 2), random_hex(kNonceDigits / 2), sealed);
}

}  // namespace hccl_like
