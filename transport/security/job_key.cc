#include "transport/security/job_key.h"

#include "core/base/error.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

constexpr std::string_view kRecord = "record in the store";

std::string to_hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    digits += "0123456789abcdef"[value >> 4];
    digits += "0123456789abcdef"[value & 15];
  }
  return digits;
}

// A value's proof is a tag truncated to 128 bits.
constexpr size_t kProofBytes = 16;
constexpr size_t kProofDigits = 2 * kProofBytes;

std::string proof_of(const JobKey& job, std::string_view key, std::string_view value) {
  return to_hexadecimal(job.key().tag(kRecord, {key, value}).substr(0, kProofBytes));
}

}  // namespace

JobKey::JobKey() : key_(Key::from_secret("")) {}

JobKey JobKey::of(const Config& config) {
  JobKey job;
  if (!config.secret_file.empty()) {
    job.key_ = Key::from_secret(Secret::read_file(config.secret_file).text());
    job.source_ = "HCCL_LIKE_SECRET_FILE";
  } else if (!config.secret.empty()) {
    job.key_ = Key::from_secret(config.secret.text());
    job.source_ = "HCCL_LIKE_SECRET";
  } else if (config.encrypt) {
    throw_misuse(
        "HCCL_LIKE_ENCRYPT=1 needs a secret that is not in the store, which others may read: write "
        "one with "
        "openssl rand -hex 32 into a file of mode 0600 and name it on all ranks in "
        "HCCL_LIKE_SECRET_FILE");
  }
  return job;
}

std::string JobKey::describe() const {
  return is_secret() ? "its secret is that of " + source_ : "it has no secret";
}

std::string proof::seal(const JobKey& job, std::string_view key, std::string_view value) {
  return std::string(value) + proof_of(job, key, value);
}

proof::Opened proof::open(const JobKey& job, std::string_view key, std::string_view stored) {
  if (stored.size() < kProofDigits) return {std::string(stored), false};
  const std::string_view value = stored.substr(0, stored.size() - kProofDigits);
  const std::string right = proof_of(job, key, value);
  if (!equal_in_constant_time(stored.substr(value.size()), right))
    return {std::string(stored), false};
  return {std::string(value), true};
}

}  // namespace hccl_like
