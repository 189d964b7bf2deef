"""Exit with 0 if the URL given answers with a status below 400: a health check where there is no curl."""

import sys
import urllib.request

try:
    urllib.request.urlopen(sys.argv[1], timeout=4).close()
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
