#include "collectives/runtime.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/board/board.h"

namespace hccl_like {

Runtime::Runtime(Config config, const ModulePaths& modules)
    : config_(std::move(config)), mesh_(config_, poller_, modules), engine_(config_, poller_, mesh_) {}

Runtime::~Runtime() = default;

namespace {

// An area of the Commons, until it has found its use.
class Lease {
 public:
  explicit Lease(std::shared_ptr<Commons> commons) : commons_(std::move(commons)) {
    if (commons_) area_ = Board::take_area(*commons_);
  }
  ~Lease() {
    if (area_) commons_->areas().give_back(*area_);
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
                                              std::chrono::milliseconds timeout,
                                              Deadline deadline) {
  // Told to the others along with everything else, before it is known who they are.
  Lease lease(size > 1 ? mesh_.commons() : nullptr);
  Roster roster = mesh_.exchange(store, rank, size, deadline, lease.area());
  Communicator::Identity identity;
  identity.id = roster.communicator;
  identity.rank = rank;
  identity.name = std::move(name);
  identity.timeout = timeout;
  engine_.with_mesh([&](Mesh& mesh, const std::function<void()>& idle) {
    identity.links = mesh.connect(roster.members, rank, deadline, idle);
    for (const Link* link : identity.links)
      identity.routes.push_back(link == nullptr ? "" : mesh.describe(*link));
  });
  std::vector<std::optional<uint32_t>> areas;
  for (const ProcessRecord& member : roster.members) areas.push_back(member.area);
  if (on_one_host(roster.members))
    identity.board = Board::make(mesh_.commons(), identity.id, rank, identity.links, areas);
  if (identity.board) lease.release();
  identity.members = std::move(roster.members);
  return Communicator::create(engine_, std::move(identity));
}

}  // namespace hccl_like
