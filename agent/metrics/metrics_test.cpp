#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/metrics/metrics.hpp"

#include <doctest/doctest.h>

using hf::metrics::Registry;

namespace {

bool has(const std::string& text, const std::string& line) {
    return text.find(line + '\n') != std::string::npos;
}

}  // namespace

TEST_CASE("counters_and_gauges_come_out_by_name_and_labels") {
    Registry registry;
    registry.describe("holdfast_requests_total", "Requests by outcome.");
    auto& ok = registry.counter("holdfast_requests_total", {{"reason", "ok"}});
    ok.add(1);
    ok.add(2);
    registry.counter("holdfast_requests_total", {{"reason", "busy"}}).add(7);
    registry.gauge("holdfast_units").set(-4);
    registry.gauge("holdfast_units").add(1);
    const std::string text = registry.text();
    CHECK(has(text, "# HELP holdfast_requests_total Requests by outcome."));
    CHECK(has(text, "# TYPE holdfast_requests_total counter"));
    CHECK(has(text, "holdfast_requests_total{reason=\"ok\"} 3"));
    CHECK(has(text, "holdfast_requests_total{reason=\"busy\"} 7"));
    CHECK(has(text, "# TYPE holdfast_units gauge"));
    CHECK(has(text, "holdfast_units -3"));
    CHECK(text.find("holdfast_requests_total") < text.find("holdfast_units"));
}

TEST_CASE("the_same_labels_in_any_order_are_one_series_and_handles_stay_good") {
    Registry registry;
    auto& first = registry.counter("a_total", {{"x", "1"}, {"y", "2"}});
    for (int i = 0; i < 1000; ++i) registry.counter("b_total", {{"i", std::to_string(i)}}).add();
    CHECK(&registry.counter("a_total", {{"y", "2"}, {"x", "1"}}) == &first);
    first.add(5);
    CHECK(has(registry.text(), "a_total{x=\"1\",y=\"2\"} 5"));
}

TEST_CASE("a_total_counted_elsewhere_never_falls") {
    Registry registry;
    auto& counter = registry.counter("a_total");
    counter.raise_to(10);
    counter.raise_to(4);
    CHECK(counter.value() == 10);
}

TEST_CASE("a_histogram_is_cumulative_and_ends_at_infinity") {
    Registry registry;
    auto& waits = registry.histogram("wait_seconds", {0.001, 0.01}, {{"kind", "storage"}});
    for (const double value : {0.0005, 0.001, 0.005, 3.0}) waits.observe(value);
    const std::string text = registry.text();
    CHECK(has(text, "# TYPE wait_seconds histogram"));
    CHECK(has(text, "wait_seconds_count{kind=\"storage\"} 4"));
    CHECK(has(text, "wait_seconds_bucket{kind=\"storage\",le=\"0.001\"} 2"));
    CHECK(has(text, "wait_seconds_bucket{kind=\"storage\",le=\"0.01\"} 3"));
    CHECK(has(text, "wait_seconds_bucket{kind=\"storage\",le=\"+Inf\"} 4"));
}

TEST_CASE("foreign_label_values_cannot_break_a_line") {
    Registry registry;
    registry.counter("a_total", {{"name", "x\"\n} evil 1\\"}}).add();
    const std::string text = registry.text();
    CHECK(has(text, "a_total{name=\"x\\\"\\n} evil 1\\\\\"} 1"));
    registry.counter("a_total", {{"name", std::string(10000, 'x')}}).add();
    CHECK(registry.text().size() < 2000);
}

TEST_CASE("what_may_be_cut_comes_last") {
    Registry registry;
    registry.gauge("b_many", {{"i", "0"}}).set(1);
    registry.gauge("a_first").set(1);
    registry.gauge("c_ready").set(1);
    const std::string text = registry.text("b_many");
    CHECK(text.find("a_first 1") < text.find("c_ready 1"));
    CHECK(text.find("c_ready 1") < text.find("# TYPE b_many"));
    CHECK(text.find("# TYPE b_many") < text.find("b_many{"));
    CHECK(registry.text().find("b_many{") < registry.text().find("c_ready 1"));
}

TEST_CASE("series_beyond_the_bound_are_counted_not_kept") {
    Registry registry;
    for (std::size_t i = 0; i < hf::metrics::kSeriesMax + 10; ++i)
        registry.counter("a_total", {{"i", std::to_string(i)}}).add();
    CHECK(has(registry.text(), "holdfast_metrics_series_refused_total 10"));
    registry.gauge("late").set(1);
    registry.histogram("late_seconds", {1.0}).observe(0.5);
    CHECK(has(registry.text(), "holdfast_metrics_series_refused_total 12"));
    registry.forget("a_total", {"i", "0"});
    registry.gauge("late").set(2);
    CHECK(has(registry.text(), "late 2"));
    CHECK(registry.text().find("a_total{i=\"0\"}") == std::string::npos);
}
