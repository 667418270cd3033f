# `make package`: a Debian package and a tarball of the installed tree, both by CPack. The version is that of the project; the files' times are those of the
# last commit (SOURCE_DATE_EPOCH, set by the Makefile), so that the same source gives the same bytes.
if(AK_PACKAGE)
  configure_file(gateway/package/apparmor.in package/agentkernel @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/agentkernel DESTINATION /etc/apparmor.d)
  install(FILES LICENSE README.md SECURITY.md ARCHITECTURE.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

set(CPACK_PACKAGE_NAME agentkernel)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sandbox for AI coding agents with an enforced network allowlist")
set(CPACK_PACKAGE_DESCRIPTION "Runs AI coding agents, and the code they write, in sandboxes whose whole network
passes through one policy gateway: nftables rules, a DNS proxy and a relay,
generated from one allowlist. Needs neither root nor a running service.")
set(CPACK_PACKAGE_CONTACT "agentkernel maintainers <maintainers@agentkernel.invalid>")
set(CPACK_PACKAGE_VENDOR agentkernel)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, git, uidmap")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "skopeo, podman, qemu-system-x86, apparmor")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/gateway/package/postinst ${CMAKE_CURRENT_SOURCE_DIR}/gateway/package/postrm
  ${CMAKE_CURRENT_SOURCE_DIR}/gateway/package/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
