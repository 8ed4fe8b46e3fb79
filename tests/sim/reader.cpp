#include "tests/sim/reader.hpp"

#include <set>

#include "agent/core/keys.hpp"
#include "tests/sim/payload.hpp"

namespace hf::sim {

namespace {

UnitState trouble(std::string what) {
    UnitState out;
    out.trouble = std::move(what);
    return out;
}

}  // namespace

UnitState read_unit(const Bucket& bucket,
                    const core::Codec& codec,
                    const std::string& app,
                    const std::string& unit) {
    // Pass 1, ascending: what counts.
    std::vector<core::LogEntry> counted;
    std::set<std::uint64_t> present;
    std::uint64_t sealed_epoch = 0;
    const std::string prefix = core::key::log_prefix(app, unit);
    for (auto it = bucket.objects().lower_bound(prefix);
         it != bucket.objects().end() && it->first.starts_with(prefix);
         ++it) {
        auto entry = codec.decode_entry(it->second.body);
        if (!entry) return trouble(it->first + " does not decode: " + entry.error().message);
        if (core::key::entry(app, unit, entry->seq) != it->first)
            return trouble(it->first + " carries another sequence number");
        present.insert(entry->seq);
        if (entry->kind == core::EntryKind::Seal) {
            // Equal: a late copy of an attempt that lost its slot, below the base.
            if (entry->epoch < sealed_epoch) return trouble(it->first + " seals an older epoch");
            sealed_epoch = entry->epoch;
            continue;
        }
        if (entry->epoch < sealed_epoch) continue;
        counted.push_back(std::move(entry).value());
    }
    // Pass 2, from the newest base.
    std::size_t from = 0;
    std::uint64_t first = 1;
    for (std::size_t i = 0; i < counted.size(); ++i) {
        if (counted[i].kind != core::EntryKind::Base) continue;
        if (counted[i].base_seq + 1 != counted[i].seq)
            return trouble("the base at " + std::to_string(counted[i].seq) + " covers up to " +
                           std::to_string(counted[i].base_seq));
        from = i;
        first = counted[i].seq;
    }
    for (auto it = present.lower_bound(first); it != present.end(); ++it, ++first) {
        if (*it != first) return trouble("there is a hole at " + std::to_string(first));
    }
    UnitState out;
    for (std::size_t i = from; i < counted.size(); ++i) {
        const bool base = counted[i].kind == core::EntryKind::Base;
        for (const Bytes& blob : counted[i].changes) {
            if (base) {
                auto ids = unpack_base(blob);
                if (!ids) return trouble("a base does not decode");
                out.ids = std::move(*ids);
                continue;
            }
            const auto change = unpack_change(blob);
            if (!change) return trouble("a change does not decode");
            if (change->value != out.ids.size() + 1)
                return trouble("entry " + std::to_string(counted[i].seq) + ": the change of #" +
                               std::to_string(change->id) + " was made on value " +
                               std::to_string(change->value - 1) + ", the log before it ends at " +
                               std::to_string(out.ids.size()));
            out.ids.push_back(change->id);
        }
    }
    return out;
}

}  // namespace hf::sim
