// The only file of the supervisor that names prometheus-cpp. Its own counters are locked and atomic for any thread; ours
// belong to one, so only its data model and its serializer are used, when somebody scrapes.
#include "agent/metrics/metrics.hpp"

#include <prometheus/check_names.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>
#include <variant>

#include "abi/base/check.hpp"

namespace hf::metrics {

namespace {

// Label values may come from anywhere (class and plugin names); longer ones are cut.
constexpr std::size_t kLabelBytesMax = 256;
constexpr std::string_view kRefused = "holdfast_metrics_series_refused_total";

using OwnLabels = std::vector<std::pair<std::string, std::string>>;  // sorted by name

// One object per name and labels; node-based maps keep references good.
struct Family {
    std::string help;
    prometheus::MetricType type = prometheus::MetricType::Untyped;
    std::vector<double> bounds;
    std::map<OwnLabels, Counter> counters;
    std::map<OwnLabels, Gauge> gauges;
    std::map<OwnLabels, Histogram> histograms;
};

[[nodiscard]] OwnLabels own(Labels labels) {
    OwnLabels out;
    for (const auto& [name, value] : labels) {
        const std::string label(name);
        HF_CHECK(prometheus::CheckLabelName(label),
                 "a label has a name of letters, digits and '_'");
        out.emplace_back(label, value.substr(0, kLabelBytesMax));
    }
    std::sort(out.begin(), out.end());
    return out;
}

[[nodiscard]] prometheus::ClientMetric start(const OwnLabels& labels) {
    prometheus::ClientMetric out;
    for (const auto& [name, value] : labels) out.label.push_back({name, value});
    return out;
}

[[nodiscard]] prometheus::ClientMetric::Histogram convert(const Histogram& histogram) {
    prometheus::ClientMetric::Histogram out;
    out.sample_sum = histogram.sum();
    for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
        out.sample_count += histogram.counts()[i];
        const bool last = i == histogram.bounds().size();
        const double bound = last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i];
        out.bucket.push_back({out.sample_count, bound});
    }
    return out;
}

[[nodiscard]] prometheus::MetricFamily collect(const std::string& name, const Family& family) {
    prometheus::MetricFamily out;
    out.name = name;
    out.help = family.help;
    out.type = family.type;
    for (const auto& [labels, counter] : family.counters) {
        out.metric.push_back(start(labels));
        out.metric.back().counter.value = static_cast<double>(counter.value());
    }
    for (const auto& [labels, gauge] : family.gauges) {
        out.metric.push_back(start(labels));
        out.metric.back().gauge.value = static_cast<double>(gauge.value());
    }
    for (const auto& [labels, histogram] : family.histograms) {
        out.metric.push_back(start(labels));
        out.metric.back().histogram = convert(histogram);
    }
    return out;
}

}  // namespace

struct Registry::Inner {
    std::map<std::string, Family, std::less<>> families;
    std::size_t series = 0;
    // What callers get beyond kSeriesMax: they may add to it, nobody reads it.
    Counter no_counter;
    Gauge no_gauge;
    std::map<std::string, Histogram, std::less<>> no_histograms;

    Family& family(std::string_view name, prometheus::MetricType type) {
        auto found = families.find(name);
        if (found == families.end()) {
            HF_CHECK(prometheus::CheckMetricName(std::string(name)),
                     "a metric has a name of letters, digits and '_'");
            found = families.emplace(std::string(name), Family{}).first;
        }
        Family& out = found->second;
        if (out.type == prometheus::MetricType::Untyped) out.type = type;
        HF_CHECK(out.type == type, "one metric name has one type");
        return out;
    }

    // The object for these labels; nullptr when it would be one too many.
    template <class T, class... Args>
    T* find_or_make(std::map<OwnLabels, T>& all, Labels labels, const Args&... args) {
        OwnLabels key = own(labels);
        const auto found = all.find(key);
        if (found != all.end()) return &found->second;
        if (series >= kSeriesMax) {
            refused().add();
            return nullptr;
        }
        ++series;
        return &all.try_emplace(std::move(key), args...).first->second;
    }

    Counter& refused() { return family(kRefused, prometheus::MetricType::Counter).counters[{}]; }
};

Registry::Registry() : inner_(std::make_unique<Inner>()) {
    describe(kRefused, "Series beyond the bound that are kept nowhere.");
    static_cast<void>(inner_->refused());
}
Registry::~Registry() = default;

void Registry::describe(std::string_view name, std::string_view help) {
    const auto found = inner_->families.find(name);
    Family& family =
        found != inner_->families.end() ? found->second : inner_->families[std::string(name)];
    family.help = help;
}

Counter& Registry::counter(std::string_view name, Labels labels) {
    Family& family = inner_->family(name, prometheus::MetricType::Counter);
    Counter* const found = inner_->find_or_make(family.counters, labels);
    return found != nullptr ? *found : inner_->no_counter;
}

Gauge& Registry::gauge(std::string_view name, Labels labels) {
    Family& family = inner_->family(name, prometheus::MetricType::Gauge);
    Gauge* const found = inner_->find_or_make(family.gauges, labels);
    return found != nullptr ? *found : inner_->no_gauge;
}

Histogram& Registry::histogram(std::string_view name,
                               std::initializer_list<double> bounds,
                               Labels labels) {
    Family& family = inner_->family(name, prometheus::MetricType::Histogram);
    if (family.bounds.empty()) family.bounds = bounds;
    HF_CHECK(std::is_sorted(family.bounds.begin(), family.bounds.end()),
             "bounds of a histogram ascend");
    Histogram* const found = inner_->find_or_make(family.histograms, labels, family.bounds);
    if (found != nullptr) return *found;
    return inner_->no_histograms.try_emplace(std::string(name), family.bounds).first->second;
}

void Registry::forget(std::string_view name, const Label& label) {
    const auto found = inner_->families.find(name);
    if (found == inner_->families.end()) return;
    const std::pair<std::string, std::string> wanted(label.first,
                                                     label.second.substr(0, kLabelBytesMax));
    const auto carries = [&](const auto& one) {
        return std::find(one.first.begin(), one.first.end(), wanted) != one.first.end();
    };
    Family& family = found->second;
    inner_->series -= std::erase_if(family.counters, carries) +
                      std::erase_if(family.gauges, carries) +
                      std::erase_if(family.histograms, carries);
}

std::string Registry::text(std::string_view last) const {
    std::vector<prometheus::MetricFamily> families;
    for (const bool at_end : {false, true})
        for (const auto& [name, family] : inner_->families)
            if (family.type != prometheus::MetricType::Untyped && (name == last) == at_end)
                families.push_back(collect(name, family));
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families);
    return std::move(out).str();
}

}  // namespace hf::metrics
