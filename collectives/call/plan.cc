#include "collectives/call/plan.h"

#include <algorithm>
#include <map>

namespace hccl_like {

Program::Program(Schedule s, bool all_at_once) : schedule(std::move(s)), sums_at_once(all_at_once) {
  for (size_t round = 0; round < schedule.rounds(); ++round) {
    std::map<int32_t, uint16_t> sends, recvs;
    size_t sent = 0, received = 0;
    for (const Step& step : schedule.steps(round)) {
      if (first_step == nullptr) first_step = &step;
      occurrence.resize(number(step) + 1);
      if (step.kind == Step::Kind::kSend) {
        occurrence[number(step)] = sends[step.peer]++;
        ++sent;
      } else if (step.kind == Step::Kind::kRecv || step.kind == Step::Kind::kRecvReduce) {
        occurrence[number(step)] = recvs[step.peer]++;
        ++received;
      }
    }
    most_sends = std::max(most_sends, sent);
    most_recvs = std::max(most_recvs, received);
  }
}

}  // namespace hccl_like
