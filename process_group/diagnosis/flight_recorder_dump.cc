#include "process_group/diagnosis/flight_recorder_dump.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include <torch/csrc/distributed/c10d/FlightRecorderDetail.hpp>

#include "core/base/fd.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

// A prefix that the analyser accepts.
constexpr const char* kPrefix = "hccl:";
constexpr const char* kLibrary = "hccl-like";
// The analyser merges consecutive calls with equal numbers into one block. This offset keeps
// message numbers apart from collective numbers.
constexpr uint64_t kFirstMessage = 1'000'000'000;

// Entries hold the call state; torch's recorder would query events.
struct NoEvent {
  static bool query() { return false; }
};
using Theirs = c10d::FlightRecorder<NoEvent>;

std::string name_of(const FlightEntry& entry) {
  const std::string called = entry.name();
  std::string name = kPrefix + called;
  const std::string here = std::to_string(entry.group->rank);
  if (called == "send") name += " " + here + "->" + std::to_string(entry.peer);
  if (called == "recv") name += " " + here + "<-" + std::to_string(entry.peer);
  return name;
}

std::optional<c10::time_t> known(int64_t time) {
  return time == 0 ? std::nullopt : std::optional<c10::time_t>(time);
}

template <class Dimensions, class Types, class Sizes>
void copy(const FlightEntry::Shapes& from, Dimensions& dimensions, Types& types, Sizes& sizes) {
  dimensions.append(from.dimensions.begin(), from.dimensions.end());
  types.assign(from.types.begin(), from.types.end());
  sizes.append(from.sizes.begin(), from.sizes.end());
}

Theirs::Entry translate(const FlightEntry& entry, size_t group) {
  Theirs::Entry theirs{};
  theirs.id_ = entry.id;
  theirs.pg_id_ = group;
  theirs.pg_name_ = {entry.group->name, entry.group->description};
  theirs.collective_seq_id_ = entry.number.collective;
  theirs.p2p_seq_id_ = entry.number.message + kFirstMessage;
  theirs.op_id_ = entry.number.operation;
  theirs.profiling_name_ = name_of(entry);
  theirs.traceback_ = entry.stack ? entry.stack : std::make_shared<torch::CapturedTraceback>();
  theirs.time_created_ = entry.created;
  theirs.timeout_ms_ = entry.timeout.count();
  theirs.isP2P_ = entry.number.is_message;
  theirs.time_discovered_started_ = known(entry.started);
  theirs.time_discovered_completed_ = known(entry.completed);
  if (entry.retired && entry.completed != 0) {  // otherwise unknown
    theirs.duration_ = std::chrono::duration<float, std::milli>(entry.duration).count();
  }
  copy(entry.inputs, theirs.input_dims_, theirs.input_dtypes_, theirs.sizes_);
  copy(entry.in_place ? entry.inputs : entry.outputs, theirs.output_dims_, theirs.output_dtypes_,
       theirs.sizes_);
  theirs.thread_id_ = entry.thread;
  theirs.thread_name_ = entry.thread_name.data();
  theirs.retired_ = entry.retired;
  return theirs;
}

void advance(int64_t& last, uint64_t number) {
  last = std::max(last, static_cast<int64_t>(number));
}

void add_status(c10d::ProcessGroupStatus& status, const FlightEntry& entry) {
  if (entry.number.is_message) return;
  advance(status.lastEnqueuedSeq, entry.number.collective);
  if (entry.started != 0) advance(status.lastStartedSeq, entry.number.collective);
  if (entry.completed != 0) advance(status.lastCompletedSeq, entry.number.collective);
}

std::unique_ptr<Theirs> fill(FlightRecorder& recorder) {
  auto theirs = std::make_unique<Theirs>();
  theirs->comm_lib_version_ = kLibrary;
  std::map<std::string, size_t> numbers;
  for (const auto& group : recorder.groups()) {
    const size_t number = numbers.emplace(group->name, numbers.size()).first->second;
    theirs->pg_name_to_ranks_[{group->name, group->description}] = group->global_ranks;
    theirs->all_pg_status_[number] = std::make_shared<c10d::ProcessGroupStatus>();
  }
  for (const FlightEntry& entry : recorder.entries()) {
    const auto number = numbers.find(entry.group->name);
    if (number == numbers.end()) continue;
    add_status(*theirs->all_pg_status_[number->second], entry);
    theirs->entries_.push_back(translate(entry, number->second));
  }
  return theirs;
}

// Texts in the dump that torch's analyser leaves alone.
std::optional<std::unordered_map<std::string, std::unordered_map<std::string, std::string>>>
more_about(const FlightRecorder& recorder) {
  auto failure = recorder.failure();
  if (failure.text.empty()) return std::nullopt;
  // JSON takes no half of a character, which a message that was cut may end with.
  std::ranges::replace_if(failure.text, [](unsigned char c) { return c >= 0x80; }, '?');
  std::unordered_map<std::string, std::string> told{{"failure", failure.text}};
  if (failure.lost >= 0) told["lost"] = std::to_string(failure.lost);
  return std::unordered_map{std::pair{std::string(kLibrary), std::move(told)}};
}

std::string target(int global_rank) {
  auto& writer = c10d::DebugInfoWriter::getWriter(global_rank);
  if (c10d::getCvarBool({"TORCH_FR_DUMP_DYNAMIC_FILE_NAME"}, false)) {
    const std::string prefix =
        c10d::getCvarString({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}, "");
    if (!prefix.empty()) return prefix + std::to_string(global_rank);
  }
  return writer.getWriterTarget();
}

// Writes atomically, readable by the owner only: dumps reveal source paths.
void write_private_file(const std::string& path, const std::string& content) {
  const std::filesystem::path wanted(path);
  if (wanted.has_parent_path()) std::filesystem::create_directories(wanted.parent_path());
  const std::string unfinished =
      (wanted.parent_path() / (".hccl-like-" + std::to_string(getpid()))).string();
  ::unlink(unfinished.c_str());
  const Fd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) throw_system("cannot write " + unfinished);
  for (size_t done = 0; done < content.size();) {
    const ssize_t written = ::write(file.get(), content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int why = errno;
      ::unlink(unfinished.c_str());
      errno = why;
      throw_system("cannot write " + path);
    }
    done += static_cast<size_t>(written);
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) throw_system("cannot write " + path);
}

}  // namespace

std::string dump_pickle(FlightRecorder& recorder, const DumpOptions& options) {
  return fill(recorder)->dump(more_about(recorder), options.calls,
                              options.stacks && recorder.has_stacks(), options.only_active);
}

std::string dump_json(FlightRecorder& recorder, const DumpOptions& options) {
  return fill(recorder)->dump_json(more_about(recorder), options.calls, options.only_active);
}

std::string write_dump(FlightRecorder& recorder, int global_rank) {
  const std::string dump = dump_pickle(recorder, {});
  auto& writer = c10d::DebugInfoWriter::getWriter(global_rank);
  if (typeid(writer) != typeid(c10d::DebugInfoWriter)) {  // user-defined
    writer.write(dump);
    return writer.getWriterTarget();
  }
  const std::string path = target(global_rank);
  write_private_file(path, dump);
  return path;
}

void dump_after(const Error& error, FlightRecorder& recorder, int global_rank) {
  if (!recorder.wants_dump(error)) return;
  try {
    log_warn("the flight recorder's dump of rank " + std::to_string(global_rank) + " is in " +
             write_dump(recorder, global_rank) +
             "; with those of the other ranks, python -m torch.distributed.flight_recorder.fr_trace"
             " tells what they disagree about");
  } catch (const std::exception& problem) {
    log_warn(std::string("the flight recorder could not be written down: ") + problem.what());
  }
}

}  // namespace hccl_like
