#pragma once
// The key that the processes of one job authenticate with.
#include <string>
#include <string_view>

#include "core/settings/config.h"
#include "transport/security/key.h"

namespace hccl_like {

// A value, derived from the secret in the settings; the secret itself is not kept. Without a secret
// the key is public, and two processes prove only that both have read the store: see Identity.
class JobKey {
 public:
  // The key without a secret.
  JobKey();
  // Throws kMisuse if the secret's file is unusable or the settings require a missing secret.
  static JobKey of(const Config& config);

  // Whether the settings have a secret.
  bool is_secret() const { return !source_.empty(); }
  // For messages: "its secret is that of HCCL_LIKE_SECRET", "it has no secret".
  std::string describe() const;
  const Key& key() const { return key_; }

 private:
  Key key_;
  std::string source_;  // the setting
};

// Values in a store carry a proof that the writer has the job's key and meant this store key.
// Nobody else can write a value, and no value can be moved to another key.
namespace proof {
std::string seal(const JobKey& job, std::string_view key, std::string_view value);
// `stored` is untrusted. Returns the value if its proof verifies, else all of `stored`.
struct Opened {
  std::string value;
  bool proved = false;
};
Opened open(const JobKey& job, std::string_view key, std::string_view stored);
}  // namespace proof

}  // namespace hccl_like
