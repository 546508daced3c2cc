#include "process_group/diagnosis/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/fd.h"

namespace hccl_like {
namespace {

struct ErrorFile {
  std::string path;
  std::string content;
};

std::mutex error_file_mutex;          // guards error_file
std::optional<ErrorFile> error_file;  // written by this process

std::string content_of(const std::string& message) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return nlohmann::json{
      {"message",
       {{"message", "DistBackendError: " + message},
        {"extraInfo", {{"py_callstack", message}, {"timestamp", std::to_string(seconds)}}}}}}
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string read_file(const std::string& path, size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(most, '\0');
  const ssize_t got = file.valid() ? ::read(file.get(), text.data(), most) : -1;
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

}  // namespace

void write_error_file(const std::string& message) {
  const char* const path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::lock_guard lock(error_file_mutex);
  const Fd file(::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return;
  std::string content = content_of(message);
  if (::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    ::unlink(path);  // torchrun cannot parse a partial file
    return;
  }
  error_file = ErrorFile{path, std::move(content)};
}

void withdraw_error_file() {
  std::lock_guard lock(error_file_mutex);
  if (!error_file) return;
  if (read_file(error_file->path, error_file->content.size() + 1) == error_file->content)
    ::unlink(error_file->path.c_str());
  error_file.reset();
}

}  // namespace hccl_like
