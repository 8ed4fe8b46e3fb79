// The contract's cases, by theme, and the short words they are written in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/conformance/storage_contract.hpp"

namespace hf::conformance {

#define EXPECT(condition) report.expect((condition), __FILE__, __LINE__, #condition)

Id fresh_id();
PutCall put_of(const std::string& key, const std::string& body);
PutCall create_of(const std::string& key, const std::string& body);
PutCall replace_of(const std::string& key, const std::string& body, const std::string& etag);
std::vector<ListedObject> list_all(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix,
                                   std::uint32_t limit);
std::vector<std::string> list_keys(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix,
                                   std::uint32_t limit);

std::span<const ContractCase> write_cases();
std::span<const ContractCase> list_cases();
std::span<const ContractCase> death_cases();

}  // namespace hf::conformance
