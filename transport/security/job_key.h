#pragma once
// What the processes of one job know and nobody else: the key that everything proves itself with.
#include <string>
#include <string_view>

#include "core/settings/config.h"
#include "transport/security/key.h"

namespace hccl_like {

// A value. Made of the secret in the settings; the secret itself is forgotten. Without one the key
// is known to everybody, and what two processes prove to each other is that both have read the
// store: see Identity.
class JobKey {
 public:
  // As without any secret.
  JobKey();
  // Reads the secret's file. Throws kMisuse if it cannot be used, or if the settings want a secret
  // for what they want else and there is none.
  static JobKey of(const Config& config);

  // Whether there is a secret besides what stands in the store.
  bool is_secret() const { return !source_.empty(); }
  // For people: "its secret is that of HCCL_LIKE_SECRET", "it has no secret".
  std::string describe() const;
  const Key& key() const { return key_; }

 private:
  Key key_;
  std::string source_;  // the setting
};

// What is put into a store goes with a proof that its writer has the job's key and meant this very
// key of the store: nobody else can write a value, and no value can be moved.
namespace proof {
std::string seal(const JobKey& job, std::string_view key, std::string_view value);
// `stored` comes from outside, and may be anything. The value if it is proved, else all of what is
// there.
struct Opened {
  std::string value;
  bool proved = false;
};
Opened open(const JobKey& job, std::string_view key, std::string_view stored);
}  // namespace proof

}  // namespace hccl_like
