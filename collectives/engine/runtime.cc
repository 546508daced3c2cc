#include "collectives/engine/runtime.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/call/fingerprint.h"
#include "core/base/error.h"

namespace hccl_like {

namespace {

std::shared_ptr<const Profile> load_profile(const std::string& path,
                                            std::map<std::string, std::string>& common) {
  if (path.empty()) return nullptr;
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw_misuse("HCCL_LIKE_PROFILE: " + path +
                 " cannot be read; write it with hccl-like tune, where all ranks find it");
  auto profile =
      std::make_shared<const Profile>(Profile::parse(text.str(), "HCCL_LIKE_PROFILE: " + path));
  // The same file may have another path on other ranks.
  uint64_t content = 0;
  for (const char byte : text.str()) content = mix(content, static_cast<unsigned char>(byte));
  common["HCCL_LIKE_PROFILE"] = "a file with checksum " + std::to_string(content);
  return profile;
}

}  // namespace

Runtime::Runtime(Config config, const ModulePaths& modules)
    : config_(std::move(config)),
      common_settings_(config_.common()),
      profile_(load_profile(config_.profile, common_settings_)),
      mesh_(config_, poller_, modules),
      engine_(config_, poller_, mesh_) {}

Runtime::~Runtime() = default;

namespace {

// Holds an area of the Commons until a board takes it.
class Lease {
 public:
  explicit Lease(std::shared_ptr<Commons> commons) : commons_(std::move(commons)) {
    if (commons_) area_ = Board::take_area(*commons_);
  }
  ~Lease() {
    if (area_) Board::give_back_area(*commons_, *area_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::optional<uint32_t> area() const { return area_; }
  void release() { area_.reset(); }

 private:
  const std::shared_ptr<Commons> commons_;
  std::optional<uint32_t> area_;
};

bool on_one_host(const std::vector<ProcessRecord>& members) {
  return std::ranges::all_of(members, [&](const auto& one) { return one.host == members[0].host; });
}

}  // namespace

std::shared_ptr<Communicator> Runtime::create(Store& store, int rank, int size, std::string name,
                                              std::chrono::milliseconds timeout, Deadline deadline,
                                              std::string_view scope, const std::string& device) {
  // Sent along with the exchange, before the other ranks are known.
  Lease lease(size > 1 ? mesh_.commons() : nullptr);
  if (mesh_.meets_by_tree(size)) engine_.start_accept_thread();
  Roster roster =
      mesh_.exchange(store, rank, size, deadline, lease.area(), common_settings_, scope, device);
  Communicator::Identity identity;
  identity.id = roster.communicator;
  identity.rank = rank;
  identity.name = std::move(name);
  identity.timeout = timeout;
  // All ranks are present, so only the network can delay connections.
  bool start_accept_thread = false;
  const Deadline reach = earliest(deadline, Deadline::after(engine_.config().connect_timeout));
  try {
    engine_.with_mesh([&](Mesh& mesh, const std::function<void()>& idle) {
      identity.links = config_.connect == Connecting::kLazy
                           ? mesh.introduce(roster.members, rank, reach, idle)
                           : mesh.connect(roster.members, rank, reach, idle);
      if (mesh.may_accept()) start_accept_thread = true;
    });
  } catch (const Exception& exception) {
    // Connected ranks would wait for this rank, or see it leave without a reason.
    engine_.with_mesh(
        [&](Mesh& mesh, const auto&) { identity.links = mesh.links_to(roster.members); });
    identity.members = std::move(roster.members);
    engine_.abort(*Communicator::create(engine_, std::move(identity)), exception.error());
    throw;
  }
  if (start_accept_thread) engine_.start_accept_thread();
  std::vector<std::optional<uint32_t>> areas;
  for (const ProcessRecord& member : roster.members) areas.push_back(member.area);
  if (on_one_host(roster.members))
    identity.board = Board::make(mesh_.commons(), identity.id, rank, identity.links, areas);
  if (identity.board) lease.release();
  identity.profile = profile_;
  identity.members = std::move(roster.members);
  return Communicator::create(engine_, std::move(identity));
}

}  // namespace hccl_like
