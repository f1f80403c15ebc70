// A file as the answer to a request, whole or by the ranges of RFC 9110, section 14.
#pragma once

#include <httplib.h>

#include <memory>
#include <string>

namespace magister {

// Sets body and headers of the response. False: no range of the request lies within the file; the response then has
// the header Content-Range with its size and no body. held: kept until the file is sent. Local.
bool send_file(const httplib::Request& request, httplib::Response& response, const std::string& path,
               const std::shared_ptr<void>& held);

// The request has no ranges any more: the library would cut any answer by them.
void forget_ranges(const httplib::Request& request);

}  // namespace magister
