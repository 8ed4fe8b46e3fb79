// Counters, gauges and histograms by name and labels, as the text a scraper reads. Values are plain integers of the loop
// thread: resolve a handle once, keep the pointer, add on the hot path. prometheus-cpp turns them into text when asked.
// Not responsible for serving them. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hf::metrics {

// Series of all names together: 5 kinds x 64 instances x ~10 names, rounded up. Beyond it the values of new series are
// kept nowhere and holdfast_metrics_series_refused_total counts them.
inline constexpr std::size_t kSeriesMax = 4096;

class Counter {
public:
    void add(std::uint64_t n = 1) { value_ += n; }
    // For a value that somebody else counts (an instance's cumulative counter); never lets it fall.
    void raise_to(std::uint64_t total) { value_ = total > value_ ? total : value_; }
    [[nodiscard]] std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0;
};

class Gauge {
public:
    void set(std::int64_t value) { value_ = value; }
    void add(std::int64_t n) { value_ += n; }
    [[nodiscard]] std::int64_t value() const { return value_; }

private:
    std::int64_t value_ = 0;
};

// Fixed upper bounds, in the unit the name says, ascending; an observation costs one linear search.
class Histogram {
public:
    explicit Histogram(std::vector<double> bounds)
        : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
    void observe(double value) {
        std::size_t i = 0;
        while (i < bounds_.size() && value > bounds_[i]) ++i;
        ++counts_[i];
        sum_ += value;
    }
    [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
    [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }
    [[nodiscard]] double sum() const { return sum_; }

private:
    std::vector<double> bounds_;
    std::vector<std::uint64_t> counts_;
    double sum_ = 0;
};

using Label = std::pair<std::string_view, std::string_view>;
using Labels = std::initializer_list<Label>;

// References stay good as long as the registry. The same name and labels (in any order) give the same object; one name
// has one type, or HF_CHECK. Names are ours; label values may be anyone's.
class Registry {
public:
    Registry();
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    // The sentence a scraper shows for a name.
    void describe(std::string_view name, std::string_view help);
    Counter& counter(std::string_view name, Labels labels = {});
    Gauge& gauge(std::string_view name, Labels labels = {});
    // `bounds` count at the first call for a name.
    Histogram& histogram(std::string_view name,
                         std::initializer_list<double> bounds,
                         Labels labels = {});
    // Forgets every series of a name that carries this label (an instance slot that is gone). References to them die.
    void forget(std::string_view name, const Label& label);

    // Text exposition format 0.0.4, names in alphabetical order, but `last` at the end: a page that has to be cut loses of it.
    [[nodiscard]] std::string text(std::string_view last = {}) const;

private:
    struct Inner;
    std::unique_ptr<Inner> inner_;
};

}  // namespace hf::metrics
