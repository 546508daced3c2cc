#pragma once
// A file through which other processes of the user ask this one for what it can learn of others.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/fd.h"

namespace hccl_like {

// An anonymous memfd of mode 0600, which readers open through /proc/<pid>/fd and write their
// question into. It is never mapped, so that nobody can shrink it under this process.
// python/hccl_like/top/_others.py has the same layout. One thread.
class QuestionFile {
 public:
  static constexpr const char* kName = "hccl-like-questions";

  // Null if the system gives no file.
  static std::unique_ptr<QuestionFile> make();

  // The number of the latest question, any but 0; 0: nobody has asked. One system call.
  uint64_t asked() const noexcept;
  // Readers see it whole or not at all.
  void answer(uint64_t question, std::string_view text) const noexcept;
  // asked() is 0 again, unless another question has come.
  void forget(uint64_t question) const noexcept;

 private:
  explicit QuestionFile(Fd fd) : fd_(std::move(fd)) {}
  const Fd fd_;
};

}  // namespace hccl_like
