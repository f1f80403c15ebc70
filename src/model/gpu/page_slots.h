// Slots of a page of keys and values, for kernels: KvPages::kSlots (kv_pages.h).
#pragma once

namespace magister::gpu {

constexpr int kPageSlots = 48;

}  // namespace magister::gpu
