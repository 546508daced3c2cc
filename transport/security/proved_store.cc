#include "transport/security/proved_store.h"

#include <thread>

namespace hccl_like {

proof::Opened ProvedStore::get_proved(const std::string& key, Deadline deadline) {
  constexpr std::chrono::milliseconds kPause{20};
  for (;;) {
    proof::Opened opened = get(key, deadline);
    if (opened.proved) return opened;
    if (grace_.is_never()) grace_ = Deadline::after(kGrace);
    if (grace_.expired()) return opened;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace hccl_like
