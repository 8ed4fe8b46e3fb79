// The part of the judge that knows what several nodes on one store need: a lease that its renewals fit into, an address that
// others reach, a secret they share.
#include <algorithm>

#include "agent/config/endpoints.hpp"
#include "agent/config/judge.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

// What the parts of a lease are when nobody says: of 10 s, renewed every 3 s, 2 s of grace, looked at every 1.5 s.
struct Part {
    std::string_view key;
    std::int64_t percent;
    Millis LeaseConfig::*member;
};
constexpr Part kParts[] = {{"lease_renew", 30, &LeaseConfig::renew},
                           {"lease_grace", 20, &LeaseConfig::grace},
                           {"lease_poll", 15, &LeaseConfig::poll}};
constexpr std::int64_t kWhole = 100;
// What is said of a key that is not there is said of the file.
[[nodiscard]] Place place_of(const Item* item) {
    return item == nullptr ? Place{} : item->place;
}
// Two renewals may fail and the third still comes in time.
constexpr std::int64_t kRenewalsInLease = 3;

}  // namespace

const Item* Judge::plugin_item(Slot slot, std::string_view key) const {
    const Item* plugins = root_->find("plugin");
    const Item* table = plugins == nullptr ? nullptr : plugins->find(slot_name(slot));
    if (table == nullptr || key.empty()) return table;
    return table->find(key);
}

void Judge::fill_lease(Values& values, LeaseConfig& out) {
    const Value& lease = values.find("lease")->second;
    if (!lease.good) return;  // complained about; its parts mean nothing
    const std::int64_t ttl = lease.number;
    out.ttl = Millis(ttl);
    for (const Part& part : kParts) {
        Value& value = values.find(part.key)->second;
        const std::string name = "'node." + std::string(part.key) + "'";
        if (ttl == 0) {
            if (value.given)
                complaints_->add(value.place,
                                 name + " means nothing without a lease: node.lease is \"none\"");
            continue;
        }
        if (!value.given) {
            value.number = ttl * part.percent / kWhole;
            value.text = format_duration(value.number);
            value.good = true;
        }
        out.*part.member = Millis(value.number);
        const bool renew = part.member == &LeaseConfig::renew;
        const bool poll = part.member == &LeaseConfig::poll;
        if (value.good && renew && value.number > ttl / kRenewalsInLease)
            complaints_->add(value.place,
                             name + " (" + value.text + ") must be at most a third of the lease (" +
                                 lease.text + "): a renewal that fails must not end it");
        if (value.good && poll && value.number > ttl)
            complaints_->add(value.place,
                             name + " (" + value.text + ") must not be longer than the lease (" +
                                 lease.text + ")");
    }
}

void Judge::check_cluster(const Config& out) {
    const Value& lease = node_.find("lease")->second;
    if (!lease.good) return;
    const bool alone = out.node.lease.none();
    const PluginConfig* storage = out.plugin(Slot::Storage);
    if (alone && storage != nullptr && storage->use == "storage-s3")
        complaints_->add(
            lease.given ? lease.place : place_of(plugin_item(Slot::Storage, {})),
            "'node.lease' must be a duration, for instance \"10s\": storage-s3 always "
            "has a lease, because nothing else keeps a second node away from a bucket");
    const PluginConfig* gateway = out.plugin(Slot::Gateway);
    if (gateway == nullptr) return;
    const auto refuse = [&](std::string_view key, const std::string& why) {
        complaints_->add(place_of(plugin_item(Slot::Gateway, key)),
                         "'plugin.gateway." + std::string(key) + "' " + why);
    };
    const bool secret = !gateway->setting("peer_secret_file").empty();
    const auto& cluster = gateway->cluster_listen;
    if (alone) {
        constexpr const char* kWhy =
            "means nothing without a lease: with node.lease = \"none\" there are no other nodes";
        if (secret) refuse("peer_secret_file", kWhy);
        if (cluster) refuse("cluster_listen", kWhy);
        if (const Value& told = node_.find("advertise")->second; told.given)
            complaints_->add(told.place, std::string("'node.advertise' ") + kWhy);
        return;
    }
    if (const Item* item = plugin_item(Slot::Gateway, "cluster_listen");
        cluster && (item->kind == Item::Kind::Array || item->text.find(',') != std::string::npos))
        refuse("cluster_listen", "must be one address, not a list");
    if (cluster && !secret)
        refuse("cluster_listen",
               "needs peer_secret_file: without it this node takes no calls from others");
    if (secret && !cluster && !gateway->setting("tls_certificate").empty())
        refuse(
            "peer_secret_file",
            "needs cluster_listen where listen speaks TLS: calls between nodes are signed and not "
            "encrypted");
    if (cluster && cluster->port != 0 &&
        std::find(gateway->listen.begin(), gateway->listen.end(), *cluster) !=
            gateway->listen.end())
        refuse("cluster_listen",
               "(" + cluster->text() + ") must not be one of listen, where clients come");
    if (!out.node.advertise.empty() || node_.find("advertise")->second.given) return;
    const Endpoint* told = cluster                   ? &*cluster
                           : gateway->listen.empty() ? nullptr
                                                     : &gateway->listen.front();
    if (told != nullptr && is_unspecified(*told))
        complaints_->add(lease.place,
                         "'node.advertise' is missing: with a lease other nodes must be told where "
                         "they reach this one, and " +
                             told->text() + " is every address of this machine");
}

}  // namespace hf::config
