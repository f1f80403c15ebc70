// The worker that computes teacher logits on a shard: the reduced rows of every token of the units that the group
// claims.
#pragma once

#include <memory>

#include "magister/run/shard_worker.h"
#include "tasks/teacher_logits/config.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {

// config is kept by reference. Collective over the group.
std::unique_ptr<ShardWorker> make_teacher_worker(ShardContext shard, const TeacherLogitsConfig& config,
                                                 const TeacherEncoding& encoding);

}  // namespace magister
