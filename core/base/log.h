#pragma once
// Log lines for choices and failures, once each, never on the data path.
//
// A line is "host:pid [rank] LEVEL message", as in NCCL. A call below the active level costs one
// relaxed load. Pass a function if the message is costly to build:
//
//   log_info([&] { return "rank " + std::to_string(peer) + ": " + transport; });
#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// Each level includes those before it.
enum class LogLevel : uint8_t { kWarn, kInfo, kTrace };

// "WARN", "INFO", "TRACE".
std::string_view name(LogLevel level) noexcept;

// Sets level and destination: standard error if `file` is empty, else that file, opened for append
// (%h: host name, %p: process id). Default: kWarn to standard error. Throws kSystem if the file
// cannot be opened. Callable again from one thread at a time, concurrently with log calls.
void configure_log(LogLevel level, std::string_view file = {});

// Lines go to standard error until the next configure_log(). Closes the log file, if there is one.
void close_log_file() noexcept;

// Sets the rank shown in later lines; negative: none.
void set_log_rank(int rank) noexcept;

namespace detail {
extern std::atomic<LogLevel> active_log_level;
}  // namespace detail

inline bool log_enabled(LogLevel level) noexcept {
  return level <= detail::active_log_level.load(std::memory_order_relaxed);
}

// Writes one line if the level is active. Thread-safe. Never throws: drops lines on failure.
void log(LogLevel level, std::string_view message) noexcept;

template <typename Make>
concept MessageMaker = requires(Make make) {
  { make() } -> std::convertible_to<std::string>;
};

template <MessageMaker Make>
void log(LogLevel level, Make&& make) {
  if (log_enabled(level)) log(level, std::string_view(std::string(make())));
}

inline void log_warn(std::string_view message) noexcept { log(LogLevel::kWarn, message); }
inline void log_info(std::string_view message) noexcept {
  if (log_enabled(LogLevel::kInfo)) log(LogLevel::kInfo, message);
}
inline void log_trace(std::string_view message) noexcept {
  if (log_enabled(LogLevel::kTrace)) log(LogLevel::kTrace, message);
}
template <MessageMaker Make>
void log_info(Make&& make) {
  log(LogLevel::kInfo, make);
}
template <MessageMaker Make>
void log_trace(Make&& make) {
  log(LogLevel::kTrace, make);
}

}  // namespace hccl_like
