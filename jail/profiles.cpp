#include "jail/profiles.hpp"

#include <algorithm>

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): the rule groups, a dozen names

const std::vector<Profile>& all_profiles() {
    static const std::vector<Profile> profiles = {
        {"gateway-http",
         {kAllowCommon,
          kAllowThreads,
          kAllowOutgoing,
          kAllowGatewayHttp,
          kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenRawSockets,
          kForbiddenOpenMemoryFiles,
          kForbiddenResize},
         false,
         false,
         true,
         false},
        {"storage-local",
         {kAllowCommon, kAllowThreads, kAllowStorageLocal, kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenOpenMemoryFiles},
         false,
         false,
         false,
         false},
        {"storage-s3",
         {kAllowCommon, kAllowThreads, kAllowOutgoing, kAllowStorageS3, kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenRawSockets,
          kForbiddenOpenMemoryFiles,
          kForbiddenResize},
         false,
         false,
         true,
         false},
        // /proc: the runtime reads its own pagemap to find the pages an actor changed.
        {"runtime-wasm",
         {kAllowCommon, kAllowThreads, kAllowRuntimeWasm},
         {kForbiddenToAll, kForbiddenExec, kForbiddenFork, kForbiddenSockets},
         true,
         false,
         false,
         false},
        {"placement",
         {kAllowCommon, kAllowThreads, kAllowPolicy},
         {kForbiddenToAll,
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenMemoryFiles,
          kForbiddenResize},
         false,
         false,
         false,
         false},
        {"drain",
         {kAllowCommon, kAllowThreads, kAllowPolicy},
         {kForbiddenToAll,
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenMemoryFiles,
          kForbiddenResize},
         false,
         false,
         false,
         false},
        {"builder",
         {kAllowCommon, kAllowBuilder},
         {kForbiddenToAll, kForbiddenSockets, kForbiddenMemoryFiles, kForbiddenToBuilder},
         true,
         true,
         false,
         true},
    };
    return profiles;
}

const Profile* find_profile(std::string_view name) {
    const auto& all = all_profiles();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const Profile& each) { return each.name == name; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace hf::jail
