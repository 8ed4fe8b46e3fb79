// The few atomic accesses that shared memory needs, on plain integers: the segment types stay trivially copyable, and a
// side that maps its peer's segment read-only may still load from it. Nothing here is a read-modify-write on a word that
// two sides write: every word has one writer.
#pragma once

#include <cstdint>
#include <type_traits>

namespace hf::layout {

template <class T>
concept SharedWord = std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>;

static_assert(__atomic_always_lock_free(sizeof(std::uint32_t), nullptr));
static_assert(__atomic_always_lock_free(sizeof(std::uint64_t), nullptr));

template <SharedWord T>
[[nodiscard]] inline T load_relaxed(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <SharedWord T>
[[nodiscard]] inline T load_acquire(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
// Sequentially consistent: pairs with exchange_full of the other side in the sleep protocol (ring/endpoint.hpp).
template <SharedWord T>
[[nodiscard]] inline T load_full(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}
template <SharedWord T>
inline void store_relaxed(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}
template <SharedWord T>
inline void store_release(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}
// Publishes and is a full fence at once: what this side reads next it reads after the value is visible. An exchange and
// not a store plus fence, because the thread sanitizer understands only the former.
template <SharedWord T>
inline void exchange_full(T& word, T value) {
    (void)__atomic_exchange_n(&word, value, __ATOMIC_SEQ_CST);
}

}  // namespace hf::layout
