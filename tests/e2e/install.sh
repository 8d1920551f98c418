# Installs Chromium and its driver where that can be done without asking anybody; otherwise says what is missing.

there() { command -v "$1" >/dev/null 2>&1; }

if there chromedriver && { there chromium || there chromium-browser || there google-chrome; }; then exit 0; fi

if [ "$(id -u)" = 0 ]; then as_root=; elif there sudo && sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi

if there apt-get && [ "$as_root" != no ]; then
    echo "setup: installing chromium, for the tests of the console"
    $as_root apt-get -qq update && $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends chromium chromium-driver >/dev/null && exit 0
fi

echo "The tests of the console need Chromium and its driver, and fail without them. Install both, so that" >&2
echo "'chromium' and 'chromedriver' are on the PATH (Debian: apt-get install chromium chromium-driver)." >&2
