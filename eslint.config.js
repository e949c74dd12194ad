import js from '@eslint/js';
import tseslint from 'typescript-eslint';

/** Node's `setTimeout` as a promise is a sleep; a test that sleeps proves nothing (use `until`). */
const noSleep = {
  selector: "ImportDeclaration[source.value='node:timers/promises']",
  message: 'Tests wait with until(), never by sleeping.',
};
const noDefaultExport = {
  selector: 'ExportDefaultDeclaration',
  message: 'No default exports: a name that is the same everywhere can be searched for.',
};

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', '.stack/', '*.cjs'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: './tsconfig.check.json', tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      'max-lines': ['error', { max: 300, skipComments: true, skipBlankLines: true }],
      'no-restricted-syntax': ['error', noDefaultExport],
      // Numbers and booleans read well in a message; everything else still has to be converted.
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      // `void` marks an arrow that is run for its effect.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/consistent-type-imports': 'error',
      // An async method without an await keeps an interface's shape (and turns a throw into a rejection).
      '@typescript-eslint/require-await': 'off',
      // Objects of closures are our classes: their methods know no `this`.
      '@typescript-eslint/unbound-method': 'off',
      // An endless loop that an AbortSignal ends is written `for (;;)` or `while (true)`.
      '@typescript-eslint/no-unnecessary-condition': ['error', { allowConstantLoopConditions: true }],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      'no-restricted-syntax': ['error', noDefaultExport, noSleep],
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
  { files: ['*.config.js', '*.config.ts'], rules: { 'no-restricted-syntax': 'off' } },
  { files: ['*.js'], ...tseslint.configs.disableTypeChecked },
);
