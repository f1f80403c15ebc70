// Passes of the generator between draws and writes.
#include "magister/run/generator_shard.h"

#include "magister/run/shard_threads.h"

namespace magister {

void GeneratorShard::start(const GeneratorLimits& limits, const SamplingParams& sampling, std::uint64_t seed, Generator::Stop stop,
                           std::uint64_t room) {
  generator_.emplace(*model_, limits, sampling, seed, std::move(stop));
  room_ = room;
}

void GeneratorShard::run_units() {
  while (fill() || !generator_->idle()) {
    if (stop_agreed()) {
      base_.work.tickets.request_stop();
      break;
    }
    before_pass();
    {
      const PhaseTimes::Span span(times_, "compute");
      generator_->step();
    }
    for (Generation& answer : generator_->take_finished()) under_way_ -= take(std::move(answer));
  }
  drain();
}

// False when nothing is left. Collective over the group.
bool GeneratorShard::fill() {
  const PhaseTimes::Span span(times_, "draw");
  while (!exhausted_ && under_way_ < room_) {
    if (const auto index = draw_for_group(*group_, base_.work.tickets, base_.stop_wanted)) {
      under_way_ += begin_unit(base_.file.unit(*index));
    } else {
      exhausted_ = true;
    }
  }
  return under_way_ > 0;
}

void GeneratorShard::submit(const Unit& unit, std::vector<ColumnBytes> columns) {
  writer_->submit(unit, std::move(columns));
  base_.work.tell();
}

}  // namespace magister
