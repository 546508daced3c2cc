#include "process_group/pending.h"

#include <algorithm>
#include <utility>

#include "collectives/engine.h"
#include "process_group/session.h"

namespace hccl_like {

Pending::Pending(Kind kind, const std::shared_ptr<Session>& session,
                 std::shared_ptr<Communicator> communicator)
    : kind_(kind), session_(session), communicator_(std::move(communicator)) {}

void Pending::hold(Buffers& buffers) {
  hold(buffers.take_temporaries());
  for (auto& copy : buffers.take_copies_back()) copies_back_.push_back(std::move(copy));
  for (auto& alias : buffers.take_aliases()) aliases_.push_back(std::move(alias));
}

void Pending::launch(bool waited_for) { communicator_->launch(operations_, waited_for); }

void Pending::start(void* self) { static_cast<Pending*>(self)->launch(/*waited_for=*/false); }

void Pending::join(void* self) {
  auto& pending = *static_cast<Pending*>(self);
  Engine& engine = pending.communicator_->engine();
  for (const auto& operation : pending.operations_) engine.wait(*operation, Deadline::never());
  // Under the lock to its end: whoever sees `joined_` may destroy this object.
  std::lock_guard lock(pending.joined_mutex_);
  pending.joined_ = true;
  pending.joined_changed_.notify_all();
}

void Pending::run(void* self) {
  static_cast<Pending*>(self)->launch(/*waited_for=*/true);
  join(self);
}

bool Pending::wait(Deadline deadline) {
  if (finished()) return true;
  const auto session = session_.lock();  // nobody closes the engine under a thread that waits
  return session ? wait_inside_session(deadline) : finished();
}

bool Pending::wait_inside_session(Deadline deadline) {
  if (finished()) return true;
  if (kind_ == Kind::kStream) {
    std::unique_lock lock(joined_mutex_);
    const auto joined = [&] { return joined_; };
    if (deadline.is_never()) {
      joined_changed_.wait(lock, joined);
      return true;
    }
    return joined_changed_.wait_until(lock, deadline.time_point(), joined);
  }
  for (const auto& operation : copy_operations()) {
    if (!operation->communicator().engine().wait(*operation, deadline)) return false;
  }
  return true;
}

bool Pending::over() {
  if (finished()) return true;
  if (kind_ == Kind::kStream) {
    std::lock_guard lock(joined_mutex_);
    return joined_ && (!end_ || end_->query());
  }
  std::lock_guard lock(finish_mutex_);
  for (const auto& operation : operations_) {
    if (!operation->done()) return false;
  }
  return true;
}

void Pending::finish() {
  std::lock_guard lock(finish_mutex_);
  if (finished_) return;
  for (const auto& operation : operations_) {
    if (const Error* error = operation->error(); error && !error_) error_ = *error;
    source_ = operation->source();
    duration_ = std::max(duration_, operation->duration());
  }
  if (kind_ == Kind::kHost && !error_) copy_all(copies_back_, /*non_blocking=*/false);
  aliases_.clear();
  held_.clear();
  copies_back_.clear();
  operations_.clear();
  end_.reset();
  communicator_.reset();
  finished_.store(true, std::memory_order_release);
}

void Pending::end() {
  std::shared_ptr<c10::Event> end;
  {
    std::lock_guard lock(finish_mutex_);
    end = end_;
  }
  if (end) end->synchronize();
  finish();
}

void Pending::abort(const std::string& reason) {
  std::shared_ptr<Communicator> communicator;
  {
    std::lock_guard lock(finish_mutex_);
    communicator = communicator_;
  }
  if (communicator) communicator->abort(reason);
}

std::optional<Error> Pending::failure() const {
  std::lock_guard lock(finish_mutex_);
  if (finished_) return error_;
  bool done = !operations_.empty();
  for (const auto& operation : operations_) {
    if (const Error* error = operation->error()) return *error;
    done = done && operation->done();
  }
  return done ? std::nullopt : communicator_->failure();
}

std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> Pending::storages() const {
  std::lock_guard lock(finish_mutex_);
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  storages.reserve(held_.size());
  for (const at::Tensor& tensor : held_) {
    storages.emplace_back(tensor.storage().getWeakStorageImpl());
  }
  return storages;
}

std::vector<std::shared_ptr<Operation>> Pending::copy_operations() const {
  std::lock_guard lock(finish_mutex_);
  return operations_;
}

}  // namespace hccl_like
