#!/usr/bin/env bash
set -euo pipefail
venv="$DRIVERS_CACHE/django"
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import django, psycopg' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r requirements.txt
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r site "$work/"
cd "$work/site"
export PYTHONDONTWRITEBYTECODE=1
python="$venv/bin/python"
"$python" manage.py makemigrations --verbosity 0 library
"$python" manage.py migrate --verbosity 0
"$python" manage.py makemigrations --check --dry-run --verbosity 0
"$python" manage.py check --database default >/dev/null
cp later.py library/migrations/0002_later.py
"$python" manage.py migrate --verbosity 0
"$python" manage.py use
"$python" manage.py inspectdb >models.txt
grep -q "class LibraryBook(models.Model)" models.txt
grep -q "author = models.ForeignKey(LibraryAuthor, models.DO_NOTHING)" models.txt
"$python" manage.py migrate --verbosity 0 library zero
"$python" manage.py migrate --verbosity 0 library
"$python" manage.py sqlflush >/dev/null
"$python" manage.py flush --no-input --verbosity 0
