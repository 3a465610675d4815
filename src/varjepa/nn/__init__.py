"""Parts of networks that know no paper."""
