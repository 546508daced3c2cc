#include "process_group/diagnosis/program.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

std::atomic<decltype(ProgramView::here)> view_here{nullptr};
std::atomic<decltype(ProgramView::threads)> view_threads{nullptr};

// Last two path components: installation paths differ between hosts.
std::string short_name(const std::string& file) {
  const size_t name = file.rfind('/');
  if (name == std::string::npos || name == 0) return file;
  const size_t folder = file.rfind('/', name - 1);
  return folder == std::string::npos ? file : file.substr(folder + 1);
}

struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<std::vector<ProgramThread>> threads;
};

}  // namespace

std::string ProgramLine::text() const { return short_name(file) + ":" + std::to_string(line); }

std::string ProgramLine::function_text() const { return function + " in " + short_name(file); }

void set_program_view(ProgramView view) {
  view_here = view.here;
  view_threads = view.threads;
}

std::optional<ProgramLine> line_here() {
  const auto here = view_here.load();
  return here == nullptr ? std::nullopt : here();
}

std::vector<ProgramThread> program_threads(std::chrono::milliseconds limit) {
  const auto threads = view_threads.load();
  if (threads == nullptr) return {};
  const auto answer = std::make_shared<Answer>();
  try {
    own_thread("reads where the program is", [answer, threads] {
      auto all = threads();
      std::lock_guard lock(answer->mutex);
      answer->threads = std::move(all);
      answer->came.notify_all();
    }).detach();
  } catch (const Exception& problem) {  // the error is reported without lines
    log_warn(problem.what());
    return {};
  }
  std::unique_lock lock(answer->mutex);
  answer->came.wait_for(lock, limit, [&] { return answer->threads.has_value(); });
  return answer->threads ? *answer->threads : std::vector<ProgramThread>();
}

}  // namespace hccl_like
