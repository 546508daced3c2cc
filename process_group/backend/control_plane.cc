#include "process_group/backend/control_plane.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include "process_group/backend/backend.h"
#include "process_group/diagnosis/flight_recorder_dump.h"
#include "transport/bootstrap/refusals.h"

namespace hccl_like {
namespace {

using Query = c10d::control_plane::Request;
using c10d::control_plane::Response;
using nlohmann::json;

constexpr const char* kJson = "application/json";

bool flag(const Query& request, const std::string& name, bool otherwise) {
  const std::string value = request.getParam(name);
  if (value.empty()) return otherwise;
  return value == "1" || value == "true" || value == "True";
}

DumpOptions options_of(const Query& request) {
  return {.calls = flag(request, "includecollectives", true),
          .stacks = flag(request, "includestacktraces", true),
          .only_active = flag(request, "onlyactive", false)};
}

void answer(Response& response, std::string content, const char* type) {
  response.setStatus(200);
  response.setContent(std::move(content), type);
}

json running_calls(const std::vector<FlightEntry>& entries, const std::string& group) {
  json calls = json::array();
  for (const FlightEntry& entry : entries) {
    if (entry.group->name != group || entry.retired || entry.completed != 0) continue;
    calls.push_back(
        {{"name", entry.name()},
         {"number", entry.number.is_message ? entry.number.message : entry.number.collective},
         {"state", entry.started != 0 ? "started" : "scheduled"},
         {"created_ns", entry.created}});
  }
  return calls;
}

json group_json(Backend& backend, const std::vector<FlightEntry>& entries) {
  const auto view = backend.diagnosis().group();
  const auto communicator = backend.communicator();
  const auto failure = communicator ? communicator->failure() : std::nullopt;
  return {{"name", view->name},
          {"description", view->description},
          {"rank", view->rank},
          {"size", view->size},
          {"global_ranks", view->global_ranks},
          {"sequence", backend.getSequenceNumberForGroup()},
          {"failure", failure ? json(to_string(*failure)) : json()},
          {"running", running_calls(entries, view->name)}};
}

json refused() {
  const auto counts = refused_by_this_process();
  json reasons = json::object();
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) reasons[std::string(name(static_cast<Refusal>(i)))] = counts[i];
  return reasons;
}

}  // namespace

std::string status_json(Session& session) {
  const auto entries = session.recorder().entries();
  json groups = json::array();
  session.each([&](Backend& backend) { groups.push_back(group_json(backend, entries)); });
  return json{{"pid", getpid()}, {"groups", groups}, {"refused_connections", refused()}}.dump();
}

void register_handlers(FlightRecorder& recorder,
                       std::function<std::shared_ptr<Session>()> session) {
  using c10d::control_plane::registerHandler;
  registerHandler("hccl_like_fr_trace", [&recorder](const Query& request, Response& response) {
    answer(response, dump_pickle(recorder, options_of(request)), "application/octet-stream");
  });
  registerHandler("hccl_like_fr_trace_json", [&recorder](const Query& request, Response& response) {
    answer(response, dump_json(recorder, options_of(request)), kJson);
  });
  registerHandler("hccl_like_status", [session](const Query&, Response& response) {
    const auto open = session();
    answer(response,
           open ? status_json(*open) : json{{"pid", getpid()}, {"groups", json::array()}}.dump(),
           kJson);
  });
}

}  // namespace hccl_like
