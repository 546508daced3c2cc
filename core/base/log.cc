// spdlog and fmt are compiled header-only into this file alone:no run-time dependency.
#ifndef SPDLOG_HEADER_ONLY
#define SPDLOG_HEADER_ONLY
#endif
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include "core/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <mutex>

#include "core/base/error.h"

namespace hccl_like {
namespace {

std::string host_name() {
  std::array<char, 256> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0) return "localhost";
  return buffer.data();
}

std::string expand(std::string_view pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      path += host_name();
      ++i;
    } else if (next == 'p') {
      path += std::to_string(::getpid());
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

// Reads the process id for each line, so that a forked child logs its own id.
class Log {
 public:
  Log() { set_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>()); }

  void set_sink(spdlog::sink_ptr sink) {
    auto logger = std::make_shared<spdlog::logger>("hccl-like", std::move(sink));
    logger->set_pattern("%v");
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
    const std::lock_guard lock(mutex_);
    logger_ = std::move(logger);
  }

  void write(LogLevel level, std::string_view message) {
    const int rank = rank_.load(std::memory_order_relaxed);
    const std::string rank_text = rank < 0 ? std::string() : fmt::format(" [{}]", rank);
    const std::string line =
        fmt::format("{}:{}{} hccl-like {} {}", host_, ::getpid(), rank_text, name(level), message);
    logger()->log(spdlog::level::info, line);
  }

  void set_rank(int rank) noexcept { rank_.store(rank, std::memory_order_relaxed); }

 private:
  std::shared_ptr<spdlog::logger> logger() {
    const std::lock_guard lock(mutex_);
    return logger_;
  }

  const std::string host_ = host_name();
  std::atomic<int> rank_{-1};
  std::mutex mutex_;  // guards logger_, which may be replaced during writes
  std::shared_ptr<spdlog::logger> logger_;
};

// Created on first use, never destroyed: threads may log during process exit.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

namespace detail {
std::atomic<LogLevel> active_log_level{LogLevel::kWarn};
}  // namespace detail

std::string_view name(LogLevel level) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"WARN", "INFO", "TRACE"};
  return kNames[static_cast<size_t>(level)];
}

void configure_log(LogLevel level, std::string_view file) {
  if (file.empty()) {
    the_log().set_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  } else {
    const std::string path = expand(file);
    try {
      the_log().set_sink(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    } catch (const spdlog::spdlog_ex& e) {
      throw_error(ErrorCode::kSystem,
                  "cannot open the log file " + path + " (HCCL_LIKE_DEBUG_FILE): " + e.what());
    }
  }
  detail::active_log_level.store(level, std::memory_order_relaxed);
}

void close_log_file() noexcept {
  try {
    the_log().set_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  } catch (...) {
    // Out of memory: the file stays open.
  }
}

void set_log_rank(int rank) noexcept { the_log().set_rank(rank); }

void log(LogLevel level, std::string_view message) noexcept {
  if (!log_enabled(level)) return;
  try {
    the_log().write(level, message);
  } catch (...) {
    // Out of memory: drop the line.
  }
}

}  // namespace hccl_like
