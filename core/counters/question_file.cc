#include "core/counters/question_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/memory/memory_file.h"

namespace hccl_like {
namespace {

struct Layout {
  std::array<char, 8> magic{'H', 'C', 'C', 'L', 'a', 's', 'k', '\0'};
  uint32_t version = 1;
  uint32_t pid = 0;       // in the process's own namespace
  uint64_t asked = 0;     // a reader writes any number but 0
  uint64_t answered = 0;  // the question whose answer follows; 0 while it is written
  uint64_t bytes = 0;     // of the answer
};

void put(int fd, const void* what, size_t bytes, size_t at) noexcept {
  const auto* from = static_cast<const char*>(what);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd, from, bytes, static_cast<off_t>(at));
    if (written <= 0) return;  // no memory: the reader waits in vain and says so
    from += written;
    at += static_cast<size_t>(written);
    bytes -= static_cast<size_t>(written);
  }
}

}  // namespace

std::unique_ptr<QuestionFile> QuestionFile::make() {
  try {
    Fd fd = make_shared_memory(kName);
    if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) throw_system("cannot protect it");
    Layout layout;
    layout.pid = static_cast<uint32_t>(::getpid());
    put(fd.get(), &layout, sizeof layout, 0);
    return std::unique_ptr<QuestionFile>(new QuestionFile(std::move(fd)));
  } catch (const Exception& error) {
    log_info([&] {
      return std::string("hccl-like top cannot ask this process for other hosts: ") + error.what();
    });
    return nullptr;
  }
}

uint64_t QuestionFile::asked() const noexcept {
  uint64_t question = 0;
  const ssize_t got = ::pread(fd_.get(), &question, sizeof question, offsetof(Layout, asked));
  return got == sizeof question ? question : 0;
}

void QuestionFile::answer(uint64_t question, std::string_view text) const noexcept {
  const uint64_t none = 0, bytes = text.size();
  put(fd_.get(), &none, sizeof none, offsetof(Layout, answered));
  put(fd_.get(), text.data(), text.size(), sizeof(Layout));
  put(fd_.get(), &bytes, sizeof bytes, offsetof(Layout, bytes));
  put(fd_.get(), &question, sizeof question, offsetof(Layout, answered));
}

void QuestionFile::forget(uint64_t question) const noexcept {
  const uint64_t none = 0;
  if (asked() == question) put(fd_.get(), &none, sizeof none, offsetof(Layout, asked));
}

}  // namespace hccl_like
